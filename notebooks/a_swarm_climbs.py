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
# # A swarm climbs
#
# Pendulum: swing a pendulum up with a motor that is too weak to lift it. The reward punishes angle, speed
# and force, so that every way up first goes through worse states.
#
# A swarm sends walkers into many directions at once. Walkers with bad returns become *clones* of better
# or more distant ones. We look at them in phase space: angle against angular velocity.

# %%
import contextlib
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image
from matplotlib.collections import LineCollection

import planvec
from planvec import plots, video

env = planvec.make("Pendulum-v1", num_workers=0)
hanging = env.reset(seed=3).state.copy()
hanging["physics"] = (np.pi, 0.0)  # states are records: this one hangs straight down


# %%
def angles(states):
    """Return angle (0 is up, in degrees) and angular velocity of states, `[B]` each."""
    cosine, sine, speed = env.observe(states).T
    return np.degrees(np.arctan2(sine, cosine)), speed


# %% [markdown]
# ## One decision, iteration by iteration
#
# `planner.begin` returns a search, and each run of its `simulate` moves every walker once. We answer its
# requests ourselves, which is all that planvec's driver does, and look at the walkers in between. A grey
# line leads from a walker that gave up to the one that it became a clone of.

# %%
swarm = planvec.Swarm(num_walkers=160, num_iterations=24, dt=(2, 8))
states = np.array([hanging])
search = swarm.begin(env, states, np.random.default_rng(0))
pictures = []
while search.stop_reason is None:
    simulation = search.simulate()
    request = next(simulation)
    moved = env.step_batch(request.actions, request.states, request.dt, seeds=request.seeds)
    before = angles(moved.new_states)  # where walkers are before they clone
    with contextlib.suppress(StopIteration):
        simulation.send(moved)
    sources = search.walkers.table["source"].copy()
    pictures.append((np.column_stack(before), sources, search.walkers.returns.copy()))
print(len(pictures), "iterations of", swarm.num_walkers, "walkers")

# %%
figure, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True, sharey=True, layout="constrained")
for ax, index in zip(axes.flat, (0, 2, 5, 9, 15, 23), strict=True):
    points, sources, returns = pictures[index]
    cloned = np.flatnonzero(sources != np.arange(len(sources)))
    ends, origins = points[cloned], points[sources[cloned]]
    way = (origins - ends + (180, 0)) % (360, np.inf) - (180, 0)  # the short way round
    for start, stop in ((ends, ends + way), (origins - way, origins)):
        ax.add_collection(LineCollection(np.stack([start, stop], axis=1), color="grey", alpha=0.25))
    dots = ax.scatter(*points.T, c=returns, cmap="viridis", s=16)
    ax.axvline(0, color=plots.COLORS[4], linestyle=":")
    ax.set(title=f"iteration {index + 1}, {len(cloned)} clones", xlim=(-180, 180), ylim=(-8.5, 8.5))
    figure.colorbar(dots, ax=ax, label="return")
for ax in axes[1]:
    ax.set_xlabel("angle (degrees; 0 is up)")
for ax in axes[:, 0]:
    ax.set_ylabel("angular velocity")
plt.show()

# %% [markdown]
# ## The way up
#
# The lineage of the swarm is a tree of moves. The line leads to the walker with the best return.

# %%
plan = swarm.plan(env, hanging, seed=0)
plots.plot_swarm(plan)
plt.show()
print(plan)

# %% [markdown]
# ## A whole episode, as a film
#
# At every step the swarm plans again. `planvec.video` renders each state of the episode again.

# %%
episode = planvec.run_episode(env, planvec.Swarm(num_walkers=96), seed=3, max_steps=120)
with planvec.PlanEnv("Pendulum-v1", render_mode="rgb_array") as camera:
    frames = video.episode_frames(camera, episode)
film = Path(tempfile.mkdtemp(), "swarm.gif")
video.write_video(film, [frame[100:400:2, 100:400:2] for frame in frames[::2]], fps=15)
upright = np.degrees(np.arccos(np.clip(episode.observations[-20:, 0], -1, 1)))
print(episode, "- angle at the end:", upright.mean().round(1), "degrees")
Image(film.read_bytes())

# %% [markdown]
# ## Against MPPI and iCEM
#
# Two planners that were made for control: they draw whole action sequences from a distribution, and fit
# it to the best ones. All three have about the same number of environment steps per decision.

# %%
contenders = {
    "Swarm": planvec.Swarm(num_walkers=48, num_iterations=14, dt=(2, 6)),
    "MPPI": planvec.MPPI(num_trajectories=90, horizon=30),
    "iCEM": planvec.ICEM(horizon=30),
}
episodes = {}
for name, planner in contenders.items():
    episodes[name] = [planvec.run_episode(env, planner, seed=seed, max_steps=150) for seed in range(100, 105)]
    steps = np.mean([one.num_env_steps / one.num_steps for one in episodes[name]])
    mean = np.mean([one.total_return for one in episodes[name]])
    print(f"{name:6} {mean:8.1f}   {steps:,.0f} env steps a decision")
plots.plot_returns(episodes)
plt.show()
means = {name: np.mean([one.total_return for one in played]) for name, played in episodes.items()}
assert means["iCEM"] > -260
assert means["iCEM"] > means["Swarm"]
env.close()

# %% [markdown]
# A swarm balances exploring against exploiting with two exponents. It finds the way up, but its actions
# are coarse: for fine control, iCEM refines a distribution.
#
# ## Exercises
#
# 1. `distance_scale=0` lets only returns count. Where do the walkers go?
# 2. MountainCar gives no reward at all before the flag. Which of the three planners reaches it, and why?
