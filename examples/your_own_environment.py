"""Check an environment of your own, and plan in it."""

import gymnasium
import numpy as np

import planvec


class Warehouse(gymnasium.Env):
    """Fetch three boxes from a corridor, whose places depend on the seed, and bring each to the door."""

    observation_space = gymnasium.spaces.Box(-1, 20, (5,), np.int64)
    action_space = gymnasium.spaces.Discrete(3)  # left, right, take or drop

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.load = 0, 0
        self.boxes = self.np_random.choice(np.arange(1, 12), size=3, replace=False)
        return self._observation(), {}

    def _observation(self):
        return np.array([self.position, self.load, *self.boxes])

    def step(self, action):
        reward = -0.1
        if action < 2:
            self.position = int(np.clip(self.position + 2 * action - 1, 0, 12))
        elif self.load and self.position == 0:
            self.load, reward = 0, 10.0
        elif not self.load and self.position in self.boxes:
            self.load = 1
            self.boxes[list(self.boxes).index(self.position)] = -1
        return self._observation(), reward, bool((self.boxes < 0).all()) and not self.load, False, {}


print(planvec.check_env(Warehouse, num_steps=100))
with planvec.make(Warehouse, num_workers=2) as env:
    episode = planvec.run_episode(env, planvec.Swarm(num_walkers=64), seed=0, max_steps=90)
print(episode)
