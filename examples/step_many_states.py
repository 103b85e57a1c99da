"""Step 1000 copies of one state with random actions, in two worker processes."""

import numpy as np

import planvec

with planvec.make("Acrobot-v1", num_workers=2) as env:
    states = np.repeat(env.reset(seed=0).state, 1000)
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions = rng.integers(env.action_space.n, size=1000)
        out = env.step_batch(actions, states, dt=4)
        states = out.new_states
    cosine, sine, cosine2, sine2, *_ = out.observations.T
    heights = -cosine - (cosine * cosine2 - sine * sine2)
    print(len(np.unique(states)), "different futures after 40 steps; highest tip:", heights.max().round(2))
