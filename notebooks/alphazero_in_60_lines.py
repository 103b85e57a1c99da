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
# # AlphaZero in 60 lines
#
# AlphaZero (Silver et al. 2018) alternates two things. A *search*, guided by a network, chooses better
# actions than the network alone. The *network* learns from the search: its policy from the visit counts,
# its value from the returns. Here the network has one hidden layer and is written in NumPy, and the
# environment is CartPole. planvec does the search.

# %%
import matplotlib.pyplot as plt
import numpy as np

import planvec
from planvec import plots

DISCOUNT, HORIZON, NUM_GAMES = 0.97, 200, 12
SCALE = np.array([2.4, 2.0, 0.21, 2.0])
rng = np.random.default_rng(0)


# %%
class Network:
    """A value and a policy on one hidden layer, trained by Adam."""

    def __init__(self, hidden=64):
        shapes = {"w": (4, hidden), "b": (hidden,), "v": (hidden, 3), "c": (3,)}
        self.parameters = {
            name: rng.normal(0, 1 / np.sqrt(shape[0]), shape) * (len(shape) > 1)
            for name, shape in shapes.items()
        }
        self.moments = {name: [np.zeros(shape), np.zeros(shape)] for name, shape in shapes.items()}
        self.num_updates = 0

    def forward(self, observations):
        p = self.parameters
        hidden = np.tanh(observations / SCALE @ p["w"] + p["b"])
        out = hidden @ p["v"] + p["c"]
        policy = np.exp(out[:, 1:] - out[:, 1:].max(axis=1, keepdims=True))
        return hidden, out[:, 0], policy / policy.sum(axis=1, keepdims=True)

    def evaluate(self, observations):  # what the search calls: values [B], priors [B, A]
        _, values, policy = self.forward(observations)
        return values / (1 - DISCOUNT), policy

    def update(self, observations, returns, policies, rate=3e-3):
        hidden, values, policy = self.forward(observations)
        error = np.column_stack([values - returns * (1 - DISCOUNT), policy - policies]) / len(values)
        back = error @ self.parameters["v"].T * (1 - hidden**2)
        gradients = {
            "v": hidden.T @ error,
            "c": error.sum(0),
            "w": (observations / SCALE).T @ back,
            "b": back.sum(0),
        }
        self.num_updates += 1
        for name, gradient in gradients.items():
            first, second = self.moments[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            size = np.sqrt(second / (1 - 0.999**self.num_updates)) + 1e-8
            self.parameters[name] -= rate * first / (1 - 0.9**self.num_updates) / size


# %% [markdown]
# ## Playing
#
# Twelve games at once: `plan_batch` plans at all of their states, and the searches share the batches that
# they step. Root noise makes the games differ; the search goes on with the tree of the move before.


# %%
def play(env, network, num_simulations, noise, seed):
    """Return observations, discounted returns, policies of the search, and the lengths of the games."""
    planner = planvec.MCTS(
        num_simulations=num_simulations,
        selection="puct",
        evaluate_fn=network.evaluate,
        discount=DISCOUNT,
        root_noise=(0.5, noise) if noise else None,
    )
    states = np.array([env.reset(seed=seed + game).state for game in range(NUM_GAMES)])
    alive, plans = np.arange(NUM_GAMES), [None] * NUM_GAMES
    games = [[] for _ in range(NUM_GAMES)]
    for _ in range(HORIZON):
        seeds = rng.integers(2**32, size=len(alive))
        planned = planner.plan_batch(
            env, states[alive], seeds=seeds, previous=[plans[game] for game in alive]
        )
        observations = env.observe(states[alive])
        visits = np.array([plan.visit_counts for plan in planned], float)
        policies = visits / visits.sum(axis=1, keepdims=True)
        actions = np.array([plan.action for plan in planned])
        out = env.step_batch(actions, states[alive])
        for row, game in enumerate(alive):
            games[game].append((observations[row], policies[row]))
            plans[game] = planned[row]
        states[alive] = out.new_states
        alive = alive[~(out.terminated | out.truncated)]
        if not len(alive):
            break
    lengths = np.array([len(game) for game in games])
    returns = []
    for length in lengths:
        left = np.arange(length, 0, -1)  # steps that were left; a pole that stood to the end stands on
        value = (1 - DISCOUNT**left) / (1 - DISCOUNT)
        returns.append(np.where(length == HORIZON, 1 / (1 - DISCOUNT), value))
    pairs = [pair for game in games for pair in game]
    return np.array([o for o, _ in pairs]), np.concatenate(returns), np.array([p for _, p in pairs]), lengths


# %% [markdown]
# ## Learning
#
# Each round plays twelve games, and trains on the games of the last four rounds. Beside it, the network plays
# almost alone: with 2 simulations.

# %%
network = Network()
memory, curve = [], []
with planvec.make("CartPole-v1", num_workers=0) as env:
    for round_number in range(9):
        *data, lengths = play(env, network, num_simulations=24, noise=0.25, seed=1000 * round_number)
        memory.append(data)
        observations, returns, policies = (np.concatenate(part) for part in zip(*memory[-4:], strict=True))
        for _ in range(300):
            rows = rng.integers(len(observations), size=256)
            network.update(observations[rows], returns[rows], policies[rows])
        alone = play(env, network, num_simulations=2, noise=0.0, seed=7)[-1]
        curve.append((lengths.mean(), alone.mean()))
        print(f"round {round_number}: {lengths.mean():5.1f} steps, with 2 simulations {alone.mean():5.1f}")

# %%
curve = np.array(curve)
figure, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
for column, (label, marker) in enumerate((("with 24 simulations", "o"), ("with 2 simulations", "s"))):
    ax.plot(curve[:, column], marker=marker, color=plots.COLORS[column], label=label)
ax.axhline(HORIZON, color="grey", linestyle=":")
ax.set(xlabel="round", ylabel="steps (at most 200)", title="Self-improvement on CartPole")
ax.legend()
plt.show()
assert curve[1:, 0].max() > 2 * curve[0, 0]
assert curve[1:, 1].max() > 100

# %% [markdown]
# ## What did it learn?
#
# The curve is that of one seed, and goes up and down: the policy changes the games that it learns from.
#
# Below are the value and the policy over angle and angular velocity, for a cart that stands in the middle,
# where games came. (A network says something everywhere, but nobody has taught it what to say elsewhere.) The
# network pushes to the side to which the pole falls.

# %%
angle, speed = np.meshgrid(np.linspace(-0.2, 0.2, 80), np.linspace(-2, 2, 80))
zeros = np.zeros(angle.size)
seen = np.concatenate([data[0] for data in memory])[:, 2:]
counts, *edges = np.histogram2d(*seen.T, bins=24, range=((-0.2, 0.2), (-2, 2)))
cells = [np.digitize(x, edge[1:-1]) for x, edge in zip((angle, speed), edges, strict=True)]
is_known = counts[tuple(cells)] > 0
values, policy = network.evaluate(np.column_stack([zeros, zeros, angle.ravel(), speed.ravel()]))
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for ax, numbers, title in (
    (axes[0], values, "value"),
    (axes[1], policy[:, 1], "probability of a push to the right"),
):
    shown = np.where(is_known, numbers.reshape(angle.shape), np.nan)
    image = ax.pcolormesh(np.degrees(angle), speed, shown, cmap="viridis")
    figure.colorbar(image, ax=ax)
    ax.set(xlabel="pole angle (degrees)", ylabel="angular velocity", title=title)
plt.show()
push = policy[:, 1].reshape(angle.shape)
falls_right = is_known & (angle > 0.05) & (speed > 0.5)
falls_left = is_known & (angle < -0.05) & (speed < -0.5)
assert push[falls_right].mean() > 0.5 > push[falls_left].mean()

# %% [markdown]
# ## Exercises
#
# 1. Draw the actions from the visit counts instead of taking the most visited one. Does it learn faster?
# 2. Replace CartPole by `Acrobot-v1` (six numbers, three actions). What has to change in the network, and
#    what in the targets?
