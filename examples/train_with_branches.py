"""Step a vector environment, save all of its states, and branch from the best one."""

import gymnasium
import numpy as np

from planvec.vector import AsyncVectorEnv

envs = AsyncVectorEnv([lambda: gymnasium.make("LunarLander-v3")] * 8, num_workers=2)
envs.reset(seed=0)
total = np.zeros(8)
for _ in range(60):
    _, rewards, *_ = envs.step(envs.action_space.sample())
    total += rewards
best = int(total.argmax())
states = envs.get_states()  # planners and planvec.make take them
envs.branch(best, into=[index for index in range(8) if index != best])
observations, *_ = envs.step(np.zeros(8, int))
assert (observations == observations[0]).all()
print(f"all environments go on from the one with return {total[best]:.1f}; {len(states)} states are saved")
envs.set_states(states)  # back to where they were
envs.close()
