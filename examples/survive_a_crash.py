"""Kill a worker in the middle of a batch: the result is the same."""

import numpy as np

import planvec

with planvec.make("CartPole-v1", num_workers=2, compiled=False) as env:
    states = np.repeat(env.reset(seed=0).state, 2000)
    expected = env.step_batch(np.zeros(2000, int), states, dt=20)
    promise = env.step_batch(np.zeros(2000, int), states, dt=20, blocking=False)
    env.workers[0].kill()  # as the operating system does when memory is short
    out = promise.result()
    assert out.new_states.tobytes() == expected.new_states.tobytes()
    print("the same bytes;", env.stats.restarts, "worker was replaced")
