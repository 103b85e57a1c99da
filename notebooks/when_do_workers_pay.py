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
# # When do workers pay?
#
# A worker is a process. Sending a row to it and back costs some 40 microseconds, and two cores can at
# most halve the time. So whether workers pay depends on what a step costs, and on how many rows a call
# has. We measure three environments whose steps cost some 5, 200 and 20,000 microseconds, look at when each
# chunk of a batch was stepped, and then at compiled steps.
#
# The numbers are those of the machine that ran this notebook. `planvec bench ENV_ID` measures yours.

# %%
import os
import tempfile
import time

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

import planvec
from planvec import plots
from planvec.checking import measure_throughput

print("cores:", len(os.sched_getaffinity(0)))

# %% [markdown]
# ## Steps per second against rows and workers

# %%
CASES = {
    "CartPole, 5 us a step": (lambda: gymnasium.make("CartPole-v1"), (1, 16, 256, 2048), 8.0),
    "MsPacman, 230 us a step": (
        lambda: gymnasium.make("ALE/MsPacman-v5", obs_type="ram"),
        (1, 8, 64, 256),
        14.0,
    ),
    "highway, some 20 ms a step": (lambda: gymnasium.make("highway-fast-v0"), (1, 4, 16), 24.0),
}
measured = {
    name: measure_throughput(make, rows=rows, num_workers=(1, 2), seconds=seconds)
    for name, (make, rows, seconds) in CASES.items()
}
figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
for ax, (name, throughput) in zip(axes, measured.items(), strict=True):
    plots.plot_throughput(throughput, ax=ax)
    ax.set_title(name)
plt.show()
for name, throughput in measured.items():
    print(name)
    print(throughput, "\n")
assert all((throughput.steps_per_second > 0).all() for throughput in measured.values())

# %% [markdown]
# The star marks what was fastest here, on a machine that may have done other things, too. One row cannot be
# shared by two workers: they cost a message, which matters for CartPole, and is lost in the noise where a
# step takes 20 ms. Sixteen rows of CartPole take less time than two messages. With many rows, or with slow
# steps, two workers on two cores come close to twice the speed.
#
# ## When is each chunk stepped?
#
# An environment that writes down when it steps, and in which process. Rows differ: the first quarter
# takes ten times as long. planvec cuts large chunks first and small ones at the end, so that a worker waits
# for another one no longer than a small chunk takes. Between two blocking calls all workers wait. With
# promises, they go on with the chunks that they were already sent.

# %%
LOG = tempfile.mkdtemp()


class Timed(gymnasium.Env):
    """Computes for 1 ms times the action, and writes down when."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(11)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        began = time.perf_counter()
        while time.perf_counter() - began < 0.001 * action:
            pass
        with open(f"{LOG}/{os.getpid()}", "a") as file:
            file.write(f"{began} {time.perf_counter()} {action}\n")
        return 0, 0.0, False, False, {}


def timeline(ax, run, title):
    """Draw when each process stepped, from the beginning of `run` on."""
    for name in os.listdir(LOG):
        os.unlink(f"{LOG}/{name}")
    began = time.perf_counter()
    marks = run()
    for lane, name in enumerate(sorted(os.listdir(LOG))):
        times = np.loadtxt(f"{LOG}/{name}", ndmin=2)
        colours = [plots.COLORS[1] if cost > 5 else plots.COLORS[0] for cost in times[:, 2]]
        spans = np.column_stack([times[:, 0] - began, times[:, 1] - times[:, 0]]) * 1000
        ax.broken_barh(spans, (lane - 0.4, 0.8), facecolors=colours, edgecolors="none")
    for mark in marks:
        ax.axvline((mark - began) * 1000, color=plots.COLORS[4], linestyle=":")
    ax.set(title=title, yticks=[0, 1], yticklabels=["worker 0", "worker 1"], xlabel="milliseconds")


uneven = np.where(np.arange(96) < 24, 10, 1)  # 24 rows of 10 ms, 72 rows of 1 ms
with planvec.make(Timed, num_workers=2, audit=0.0) as env:
    states = np.empty(96, env.state_dtype)
    states[:] = [env.reset(seed=0).state] * 96

    def blocking():
        env.step_batch(uneven, states)
        marks = [time.perf_counter()]
        time.sleep(0.05)  # we compute something; the workers are idle
        env.step_batch(uneven, states)
        return [*marks, time.perf_counter()]

    def promised():
        first = env.step_batch(uneven, states, blocking=False)
        second = env.step_batch(uneven, states, blocking=False)
        first.result()
        marks = [time.perf_counter()]
        time.sleep(0.05)  # we compute something; the workers go on with the second batch
        second.result()
        return [*marks, time.perf_counter()]

    blocking()  # the first batch measures what rows cost
    figure, axes = plt.subplots(2, 1, figsize=(12, 5), sharex=True, layout="constrained")
    timeline(axes[0], blocking, "blocking: the workers wait while we compute (dotted: a result was read)")
    timeline(axes[1], promised, "promises: the workers go on with what they were sent while we compute")
    kinds = [Patch(color=plots.COLORS[0], label="rows of 1 ms"), Patch(color=plots.COLORS[1], label="10 ms")]
    axes[0].legend(handles=kinds, loc="upper right", ncols=2)
    plt.show()

# %% [markdown]
# ## Or no workers at all
#
# For Gymnasium's classic control and toy text, planvec has compiled steps with the same bits, in this
# process.

# %%
plots.plot_throughput(
    measure_throughput("CartPole-v1", rows=(1, 64, 4096, 100_000), num_workers=(2,), seconds=12.0)
)
plt.show()

# %% [markdown]
# ## Exercises
#
# 1. `rollout_batch` does many steps per call. From how many steps on do workers pay for 16 rows of
#    CartPole?
# 2. Replace the busy loop of `Timed` by `time.sleep`. With how many workers on your machine does the time
#    stop falling?
