"""Kill a parent with SIGKILL, again and again, and look whether anything of it is left.

    python benchmarks/orphans.py --times 100

For each of three states of the workers (idle, busy, hung in C with Python's lock held) and each start method
in turn, a parent is started and killed; then all that it had started, helpers and grandchildren too, is
watched by the kernel's own handles. It ends with status 1 if anything lives for more than two seconds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import select
import statistics
import subprocess
import sys
import time

from figures import Figures, add_plain

from planvec.backends.processes.system import descendants

SECONDS = 2.0
PARENT = """
import ctypes, signal, subprocess, sys
import gymnasium, numpy as np, planvec

class Patient(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(3)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.armed = bool(options)
        return 0, {{}}
    def step(self, action):
        if self.armed and action == 1:
            ctypes.PyDLL(None).sleep(3600)
        if self.armed and action == 2:
            subprocess.Popen(["sleep", "3600"])
        return 0, 0.0, False, False, {{}}

env = planvec.make(Patient, num_workers=2, start_method={method!r})
state = env.reset(seed=0, options={{"armed": True}}).state
env.step_batch([2, 2], state)
if {what!r} == "busy":
    promise = env.step_batch(np.zeros(100_000, int), state, dt=10_000, blocking=False)
elif {what!r} == "hung":
    promise = env.step_batch([1, 1], state, blocking=False)
print("ready", flush=True)
signal.pause()
"""


def kill_one(method: str, what: str) -> tuple[int, float, int]:
    """Kill a parent; returns the number of its processes, how long the last one lived, how many too long."""
    code = PARENT.format(method=method, what=what)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        pids = descendants(parent.pid)
        handles = {os.pidfd_open(pid): pid for pid in pids}
        parent.kill()
        started = time.monotonic()
        left = dict(handles)
        while left and time.monotonic() - started < SECONDS:
            ready, _, _ = select.select(list(left), [], [], 0.01)
            for handle in ready:
                del left[handle]
        elapsed = time.monotonic() - started
        for handle, pid in handles.items():
            if handle in left:
                os.kill(pid, 9)
            os.close(handle)
    return len(pids), elapsed, len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="for each state of the workers")
    parser.add_argument("--methods", nargs="+", default=["template", "spawn", "fork"])
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    status = 0
    for what in ("idle", "busy", "hung"):
        methods = itertools.cycle(arguments.methods)
        runs = [kill_one(method, what) for method, _ in zip(methods, range(arguments.times), strict=False)]
        clean = sum(not left for _, _, left in runs)
        times = [elapsed for _, elapsed, _ in runs]
        num_processes = sum(count for count, _, _ in runs)
        figures.text(
            f"{what:<5} {clean} of {len(runs)} left nothing; {num_processes} processes, gone after "
            f"{statistics.median(times) * 1000:.0f} ms at the median, {max(times) * 1000:.0f} at most"
        )
        figures.figure(f"{what}/left over/runs", len(runs) - clean)
        figures.figure(f"{what}/gone after/ms", statistics.median(times) * 1000)
        status |= clean < len(runs)
    return status


if __name__ == "__main__":
    sys.exit(main())
