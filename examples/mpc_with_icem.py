"""Control HalfCheetah by model predictive control with iCEM, with the environment itself as the model."""

import planvec

planner = planvec.ICEM(num_trajectories=32, num_elites=6, horizon=20, noise_beta=0.25)
with planvec.make("HalfCheetah-v5") as env:  # steps on threads of this process
    episode = planvec.run_episode(env, planner, seed=0, max_steps=40)
    print(f"return after {episode.num_steps} steps: {episode.total_return:.1f}")
    print(f"{episode.num_env_steps / episode.elapsed:,.0f} simulated steps per second")
