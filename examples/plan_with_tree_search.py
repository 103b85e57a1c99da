"""Cross a slippery lake by tree search, which averages over chance."""

import planvec

planner = planvec.MCTS(num_simulations=400, rollout_horizon=0, transpositions="cell", discount=0.98)
with planvec.make("FrozenLake-v1") as env:
    episodes = [planvec.run_episode(env, planner, seed=seed) for seed in range(4)]
returns = [int(episode.total_return) for episode in episodes]
print(f"reached the goal in {sum(returns)} of {len(returns)} episodes")
