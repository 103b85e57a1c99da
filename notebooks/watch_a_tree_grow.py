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
# # Watch a tree grow
#
# FrozenLake is a map with holes. The agent starts in the upper left corner, and the only reward, 1, waits
# in the lower right one. On the slippery lake, an action goes where it should with probability 1/3, and
# to either side else.
#
# The lake is small enough for value iteration, which knows the right answer. We watch a search find it.

# %%
import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import planvec
from planvec import plots

DISCOUNT = 0.95
NAMES = ("left", "down", "right", "up")

# %% [markdown]
# ## The right answer
#
# `P` of Gymnasium's environment lists all transitions: probability, next cell, reward, end.


# %%
def optimal_values(is_slippery):
    """Return the optimal value of each action `[16, 4]`, by value iteration."""
    table = gymnasium.make("FrozenLake-v1", is_slippery=is_slippery).unwrapped.P
    q = np.zeros((16, 4))
    for _ in range(1000):
        values = q.max(axis=1)
        for cell, action in np.ndindex(16, 4):
            q[cell, action] = sum(
                p * (reward + DISCOUNT * values[after] * (not ended))
                for p, after, reward, ended in table[cell][action]
            )
    return q


exact = {slippery: optimal_values(slippery) for slippery in (False, True)}
print("value of the start, not slippery:", exact[False][0].max().round(4))
print("value of the start, slippery:    ", exact[True][0].max().round(4))

# %% [markdown]
# ## The tree
#
# A search without rollouts that lets equal cells share a node. Each point is a cell, larger with more visits,
# and brighter where the action that leads to it is worth more. First where every action does what it should.


# %%
def search(env, num_simulations, **options):
    """Search at the start of the lake."""
    options = {
        "rollout_horizon": 0,
        "discount": DISCOUNT,
        "transpositions": "cell",
        "backup": "max",
        **options,
    }
    planner = planvec.MCTS(num_simulations=num_simulations, **options)
    return planner.plan(env, env.reset(seed=0).state, seed=0)


def picture(env, title):
    """Draw trees of 50, 200 and 1000 simulations, and the visits of the cells."""
    figure, axes = plt.subplots(2, 3, figsize=(14, 7.5), layout="constrained")
    for column, num_simulations in enumerate((50, 200, 1000)):
        plan = search(env, num_simulations)
        plots.plot_tree(plan, max_nodes=120, ax=axes[0, column])
        plots.plot_map(plan, (4, 4), ax=axes[1, column])
        axes[0, column].set_title(f"{num_simulations} simulations, value {plan.value:.3f}", fontsize=10)
    figure.suptitle(title)
    plt.show()


dry = planvec.make("FrozenLake-v1", env_kwargs={"is_slippery": False})
picture(dry, "Not slippery: the tree grows towards the goal")
tree = search(dry, 1000).search_data
goal = np.flatnonzero(tree.saved_states["cell"] == 15)[0]
came = tree.view().visits[goal]
print(f"{came:.0f} of 1000 simulations came to the goal")
assert came > 500

# %% [markdown]
# The numbers count how many simulations came to each cell. Up to 200, none has seen the reward: the search
# looks everywhere. Of 1000, most come to the goal, and few try a hole.
#
# On the slippery lake an action has up to three outcomes. The search samples them, and averages over
# them: it never foresees which one will happen.

# %%
slippery = planvec.make("FrozenLake-v1")
picture(slippery, "Slippery: every action leads to several cells")

# %% [markdown]
# ## The value converges
#
# With more simulations, the value of the root approaches the exact optimum. The dashed line is what value
# iteration says.

# %%
budgets = np.unique(np.logspace(1.3, 4, 11).astype(int))
figure, axes = plt.subplots(1, 2, figsize=(12, 3.8), layout="constrained")
errors = {}
for ax, (is_slippery, env) in zip(axes, ((False, dry), (True, slippery)), strict=True):
    # As simulations grow, more outcomes of an action are sampled: (1, 1) samples one in every visit.
    values = [search(env, int(n), outcome_widening=(1.0, 1.0), batch_size=8).value for n in budgets]
    optimum = exact[is_slippery][0].max()
    errors[is_slippery] = abs(values[-1] - optimum)
    ax.semilogx(budgets, values, marker="o", color=plots.COLORS[0], label="value of the search")
    ax.axhline(optimum, linestyle="--", color=plots.COLORS[4], label="exact optimum")
    ax.set(xlabel="simulations", ylabel="value", title="slippery" if is_slippery else "not slippery")
    ax.legend()
plt.show()
print("difference from the optimum:", {key: round(value, 4) for key, value in errors.items()})
assert errors[False] < 1e-9
assert errors[True] < 0.05

# %% [markdown]
# ## The decision
#
# Bars are visits, points the mean returns. The best action is visited most, and its value is closest to
# the exact one; bad actions keep rough values, since the search spends its time elsewhere.

# %%
plan = search(slippery, 5_000)
plots.plot_visits(plan, names=NAMES)
plt.show()
for name, value, right in zip(NAMES, plan.action_values, exact[True][0], strict=True):
    print(f"{name:6} search {value:.4f}   exact {right:.4f}")
assert exact[True][0][plan.action] == exact[True][0].max()
dry.close()
slippery.close()

# %% [markdown]
# ## Exercises
#
# 1. Leave out `transpositions`. How many nodes does the tree need for the same error? Why?
# 2. `chance="foresee"` lets the search know the dice. Plan and play 20 episodes with and without it.
#    Which return is honest?
