# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One state, many futures
#
# A planner asks "what if" thousands of times a second: from *this* state, what happens under *that*
# action? Gymnasium can only step on from where it stands. **planvec** steps any saved state, many at
# once, in worker processes, and a transition gives the same bits every time.
#
# Here one CartPole state is fanned out into 256 futures, half of them under a random policy and half
# under a simple controller. Then we replay some of them and compare bit for bit.

# %%
import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import planvec

# %% [markdown]
# ## Open the environment in two worker processes
#
# An id, an `EnvSpec` or a factory will do. A lambda from a notebook cell works too, and no `__main__`
# guard is needed. `reset` gives a state: one record with named fields, which is all that the future
# depends on.

# %%
env = planvec.make(lambda: gymnasium.make("CartPole-v1"), num_workers=2)
start = env.reset(seed=7)
print("state dtype: ", env.state_dtype)
print("the state:   ", start.state)
print("observation: ", start.observation)

# %% [markdown]
# ## Fan out
#
# `states` is an ordinary array: repeat one record, and it is the start of many rows. Each call steps
# all rows once; rows whose pole has fallen stay where they are, with reward 0 (an ended state is
# *absorbing*).

# %%
NUM_FUTURES, HORIZON = 256, 120
rng = np.random.default_rng(0)
is_controlled = np.arange(NUM_FUTURES) >= NUM_FUTURES // 2
gains = rng.uniform(0.0, 1.5, NUM_FUTURES)  # how much a controller minds the angular velocity

states = np.repeat(start.state, NUM_FUTURES)
actions = np.zeros((HORIZON, NUM_FUTURES), int)
angles = np.full((HORIZON + 1, NUM_FUTURES), np.nan)
positions = np.full((HORIZON + 1, NUM_FUTURES), np.nan)
returns = np.zeros(NUM_FUTURES)
visited = [states]

for step in range(HORIZON):
    x, _, theta, omega = states["physics"].T
    is_alive = ~states["terminated"]
    positions[step, is_alive], angles[step, is_alive] = x[is_alive], theta[is_alive]
    pushed = (theta + gains * omega > 0).astype(int)
    actions[step] = np.where(is_controlled, pushed, rng.integers(2, size=NUM_FUTURES))
    out = env.step_batch(actions[step], states)
    states = out.new_states
    returns += out.rewards
    visited.append(states)

print(f"{env.stats.num_rows:,} rows stepped in {env.stats.num_chunks:,} chunks by {env.num_workers} workers")
print(f"random policy: mean return {returns[~is_controlled].mean():.1f}")
print(f"controllers:   mean return {returns[is_controlled].mean():.1f}")

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
for controlled, colour, label in ((False, "tab:orange", "random policy"), (True, "tab:blue", "controllers")):
    chosen = is_controlled == controlled
    left.plot(np.degrees(angles[:, chosen]), color=colour, alpha=0.18, linewidth=0.8)
    left.plot([], color=colour, label=label)
    middle.plot(positions[:, chosen], angles[:, chosen], color=colour, alpha=0.18, linewidth=0.8)
    right.hist(returns[chosen], bins=np.arange(0, HORIZON + 5, 4), color=colour, alpha=0.75, label=label)
left.axhline(12, color="grey", linestyle=":")
left.axhline(-12, color="grey", linestyle=":")
left.set(xlabel="step", ylabel="pole angle (degrees)", title="256 futures of one state")
left.legend(loc="lower right")
middle.scatter(*start.state["physics"][[0, 2]], color="black", zorder=3, label="the one state")
middle.set(xlabel="cart position (m)", ylabel="pole angle (rad)", title="The same, in phase space")
middle.legend(loc="lower right")
right.set(xlabel=f"return after at most {HORIZON} steps", ylabel="futures", title="Returns")
right.legend()
plt.show()

# %% [markdown]
# ## The same bits again
#
# A transition is a pure function of (state, action, dt, seed). So any step of any future can be taken
# again, in any order, in any process, with any number of workers, and gives the same bits. We take
# 500 of the steps above in shuffled order with one worker, with three, and with none.

# %%
when = rng.integers(HORIZON, size=500)
which = rng.integers(NUM_FUTURES, size=500)
before = np.array([visited[t][row] for t, row in zip(when, which, strict=True)])
after = np.array([visited[t + 1][row] for t, row in zip(when, which, strict=True)])
for num_workers in (0, 1, 3):
    with planvec.make("CartPole-v1", num_workers=num_workers) as other:
        again = other.step_batch(actions[when, which], before)
        assert again.new_states.tobytes() == after.tobytes()
        print(f"{num_workers} workers: 500 transitions, every bit the same")

# %% [markdown]
# And Gymnasium itself agrees. One whole future, replayed by `gymnasium.Env.step` from the same seed:

# %%
best = int(np.argmax(returns))
reference = gymnasium.make("CartPole-v1")
reference.reset(seed=7)
for step in range(int(returns[best])):
    observation, *_ = reference.step(actions[step, best])
    ours = env.observe(visited[step + 1][best : best + 1])[0]
    assert observation.tobytes() == ours.tobytes()
print(f"{int(returns[best])} steps of Gymnasium's own, every observation the same to the bit")

# %% [markdown]
# ## Whole rollouts inside the workers
#
# Where the steps in between do not matter, `rollout_batch` leaves them in the workers. Each row draws
# its random actions from its own stream, derived from the seed and the row's index: never from the
# worker.

# %%
ends = env.rollout_batch(np.repeat(start.state, 1000), horizon=200, action_seed=1)
print(
    f"1000 random rollouts: {ends.returns.mean():.1f} steps on average, the longest {ends.returns.max():.0f}"
)
with planvec.make("CartPole-v1", num_workers=0) as alone:
    assert (
        alone.rollout_batch(np.repeat(start.state, 1000), horizon=200, action_seed=1).returns == ends.returns
    ).all()
env.close()
