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
import copy

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import planvec
import planvec.plots

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
# `states` is an ordinary array: repeat one record, and it is the start of many rows. Each call steps all
# rows once; rows whose pole has fallen stay where they are, with reward 0 (an ended state is
# *absorbing*).

# %%
NUM_FUTURES, HORIZON = 256, 120
rng = np.random.default_rng(0)
is_controlled = np.arange(NUM_FUTURES) >= NUM_FUTURES // 2
gains = rng.uniform(-0.5, 1.0, NUM_FUTURES)  # how much a controller minds the angular velocity

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

# %% [markdown]
# Each controller pushes against the angle plus *gain* times the angular velocity. The colour is the gain:
# below 0 the pole swings ever wider, above 0 the future is long.

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
cmap = plt.get_cmap("viridis")
for row in np.flatnonzero(is_controlled):
    colour = cmap((gains[row] + 0.5) / 1.5)
    left.plot(np.degrees(angles[:, row]), color=colour, alpha=0.5, linewidth=0.8)
    middle.plot(positions[:, row], angles[:, row], color=colour, alpha=0.5, linewidth=0.8)
left.plot(np.degrees(angles[:, ~is_controlled]), color="grey", alpha=0.25, linewidth=0.7)
for limit in (12, -12):
    left.axhline(limit, color="grey", linestyle=":")
left.set(xlabel="step", ylabel="pole angle (degrees)", title="256 futures of one state (grey: random)")
middle.scatter(*start.state["physics"][[0, 2]], color="black", zorder=3, label="the one state")
middle.set(xlabel="cart position (m)", ylabel="pole angle (rad)", title="The controllers in phase space")
middle.legend(loc="lower right")
dots = right.scatter(gains[is_controlled], returns[is_controlled], c=gains[is_controlled], cmap=cmap, s=14)
right.axhline(returns[~is_controlled].mean(), color="grey", linestyle="--", label="mean of the random policy")
right.set(xlabel="gain", ylabel=f"return after at most {HORIZON} steps", title="What the gain is worth")
right.legend(loc="center right")
figure.colorbar(dots, ax=right, label="gain")
plt.show()
assert returns[is_controlled & (gains > 0.5)].mean() > 2 * returns[~is_controlled].mean()

# %% [markdown]
# ## The same bits again
#
# A transition is a pure function of (state, action, dt, seed). So any step of any future can be taken
# again, in any order, in any process, with any number of workers, and gives the same bits. We take 500 of
# the steps above in shuffled order with one worker, with three, and with none.

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
# Where the steps in between do not matter, `rollout_batch` leaves them in the workers. Each row draws its
# random actions from its own stream, derived from the seed and the row's index: never from the worker.

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

# %% [markdown]
# ## An Atari game
#
# The same with MsPacman. Eight futures of one state, each with other random actions; the number above a
# frame is its score.

# %%
with planvec.make("ALE/MsPacman-v5", render_mode="rgb_array", num_workers=2) as game:
    begin = game.step_batch([0], game.reset(seed=0).state, dt=65).new_states  # the music is over
    rows = np.repeat(begin, 8)
    score = np.zeros(8)
    moves = np.random.default_rng(2).integers(game.action_space.n, size=(12, 8))
    for move in moves:
        out = game.step_batch(move, rows, dt=5)
        rows, score = out.new_states, score + out.rewards
    planvec.plots.plot_fan(game, rows, titles=[f"{points:.0f} points" for points in score], num_columns=4)
    plt.show()

    again = np.repeat(begin, 8)
    for move in moves:
        again = game.step_batch(move[::-1], again[::-1], dt=5).new_states[::-1]  # in another order
    assert all(one == other for one, other in zip(again, rows, strict=True))
print("eight games, replayed in another order: every state the same to the bit")

# %% [markdown]
# ## And `copy.deepcopy`?
#
# It gives an environment that steps on without an error, from the beginning of the game. The copy takes the
# same actions as the original, from "the same" moment, and answers like a third game that was just reset.

# %%
original = gymnasium.make("ALE/MsPacman-v5", obs_type="ram", repeat_action_probability=0.0)
original.reset(seed=0)
for _ in range(100):
    original.step(2)
twin = copy.deepcopy(original)
fresh = gymnasium.make("ALE/MsPacman-v5", obs_type="ram", repeat_action_probability=0.0)
fresh.reset(seed=0)
rams = np.array([[game.step(2)[0] for game in (original, twin, fresh)] for _ in range(50)])
differing = (rams[:, 0] != rams[:, 1]).sum(axis=1)
print("bytes of the RAM that differ from the original, step by step:", differing[:10], "...")
assert differing.min() > 0
assert (rams[:, 1] == rams[:, 2]).all()  # the copy has restarted

# %% [markdown]
# ## Exercises
#
# 1. Give the controllers a second gain, on the position of the cart. Does the best of them stay on the
#    track for 500 steps?
# 2. `seeds=` reseeds the randomness of each row. Step 1000 rows of the slippery FrozenLake from one state
#    with the same action and different seeds. How often does the agent go where it wanted to?
