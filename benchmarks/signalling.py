"""Measure what it costs to wake a worker and to hear from it, by mechanism.

    python benchmarks/signalling.py

One request and one answer, in turn over all mechanisms, medians. A worker that is woken on another core costs
some 20 to 50 us each way, whatever the mechanism; "look first" means that both sides look at the socket for
200 us, giving way to others, before they sleep on it. planvec does that, over sockets: they cost what the
others cost, they tell at once when the other side dies, and they have no name.

The last table is the floor of a batch over many workers: bare processes that answer at once, all of them
asked before the first answer is read, beside `step_batch` with one row of CartPole for each worker. Its last
columns are the time of the caller itself for each worker, to send rows and to read and merge the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from figures import Figures, add_plain

import planvec

CONTEXT = multiprocessing.get_context("fork")
MESSAGE = b"x" * 40
LOOK_SECONDS = 200e-6
WORK_ITERATIONS = (150, 5500)
"""Loop turns of work per request: about 2 us and 70 us."""


def work(turns: int) -> None:
    """Keep the core busy, as stepping would."""
    for _ in range(turns):
        pass


def look(poll: Any) -> None:
    """Look at a socket before sleeping on it."""
    give_up = time.perf_counter() + LOOK_SECONDS
    while not poll.poll(0):
        if time.perf_counter() > give_up:
            poll.poll()
            return
        os.sched_yield()


def socket_worker(sock: socket.socket, do: Callable[[], object], looks: bool) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while True:
        if looks:
            look(poll)
        message = sock.recv(len(MESSAGE))
        if not message:
            return
        do()
        sock.send(message)


def semaphore_worker(request: Any, answer: Any, turns: int) -> None:
    while True:
        request.acquire()
        work(turns)
        answer.release()


def eventfd_worker(request: int, answer: int, turns: int) -> None:
    while True:
        os.eventfd_read(request)
        work(turns)
        os.eventfd_write(answer, 1)


def pipe_worker(connection: Any, turns: int) -> None:
    while True:
        message = connection.recv_bytes()
        work(turns)
        connection.send_bytes(message)


@contextlib.contextmanager
def started(target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Run a worker for as long as it is needed."""
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def median_times(calls: dict[str, Callable[[], object]], num_calls: int) -> dict[str, float]:
    """Return the median seconds of each function, of 20 turns with so many calls."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(20):
        for name, call in calls.items():
            for _ in range(num_calls):
                before = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - before)
    return {name: statistics.median(values) for name, values in times.items()}


def mechanisms(stack: contextlib.ExitStack, turns: int) -> dict[str, Callable[[], object]]:
    """Return for each mechanism a function that sends a request and takes its answer."""
    calls: dict[str, Callable[[], object]] = {}
    for name, looks in (("socket", False), ("socket, look first", True)):
        ours, theirs = socket.socketpair()
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        stack.enter_context(started(socket_worker, theirs, partial(work, turns), looks))

        def by_socket(sock: socket.socket = ours, poll: Any = poll, looks: bool = looks) -> None:
            sock.send(MESSAGE)
            if looks:
                look(poll)
            sock.recv(len(MESSAGE))

        calls[name] = by_socket
    request, answer = CONTEXT.Semaphore(0), CONTEXT.Semaphore(0)
    stack.enter_context(started(semaphore_worker, request, answer, turns))

    def by_semaphore() -> None:
        request.release()
        answer.acquire()

    calls["semaphores"] = by_semaphore
    if hasattr(os, "eventfd"):
        first, second = os.eventfd(0), os.eventfd(0)
        stack.enter_context(started(eventfd_worker, first, second, turns))

        def by_eventfd() -> None:
            os.eventfd_write(first, 1)
            os.eventfd_read(second)

        calls["eventfd"] = by_eventfd
    ours_pipe, theirs_pipe = CONTEXT.Pipe()
    stack.enter_context(started(pipe_worker, theirs_pipe, turns))

    def by_pipe() -> None:
        ours_pipe.send_bytes(MESSAGE)
        ours_pipe.recv_bytes()

    calls["Pipe"] = by_pipe
    return calls


def scatter_and_gather(
    num_processes: int, do: Callable[[], object], looks: bool, stack: contextlib.ExitStack
) -> Callable[[], None]:
    """Return a function that asks bare processes over sockets to do something, and takes their answers."""
    ours, poll = {}, select.poll()
    for _ in range(num_processes):
        mine, theirs = socket.socketpair()
        stack.enter_context(started(socket_worker, theirs, do, looks))
        ours[mine.fileno()] = mine
        poll.register(mine, select.POLLIN)

    def call() -> None:
        for sock in ours.values():
            sock.send(MESSAGE)
        num_left = num_processes
        while num_left:
            if looks:
                look(poll)
            for fd, _ in poll.poll():
                ours[fd].recv(len(MESSAGE))
                num_left -= 1

    return call


def stepping(env: planvec.BatchEnv[Any], num_rows: int) -> Callable[[], object]:
    """Return a function that steps so many rows."""
    states = np.repeat(np.atleast_1d(env.reset(seed=0).state), num_rows)
    actions = np.zeros(num_rows, int)
    # a promise, since small blocking batches are stepped in this process
    return lambda: env.step_batch(actions, states, blocking=False).result()


def callers_time(env: planvec.BatchEnv[Any], num_rows: int) -> tuple[float, float]:
    """Return the median seconds that it takes to send rows, and to read the answers 100 us later."""
    states = np.repeat(np.atleast_1d(env.reset(seed=0).state), num_rows)
    actions, sending, reading = np.zeros(num_rows, int), [], []
    for _ in range(1000):
        started_at = time.perf_counter()
        promise = env.step_batch(actions, states, blocking=False)
        sent_at = time.perf_counter()
        while time.perf_counter() < sent_at + LOOK_SECONDS / 2:  # awake, as the workers are
            os.sched_yield()  # without a look at the answers, which would read them
        arrived_at = time.perf_counter()
        promise.result()
        sending.append(sent_at - started_at)
        reading.append(time.perf_counter() - arrived_at)
    return statistics.median(sending), statistics.median(reading)


def measure_many(figures: Figures, counts: list[int]) -> None:
    """Print what it costs to ask many processes, and what planvec takes."""
    figures.text(
        "\n| processes | bare: sockets | bare: look first | planvec, a row of CartPole each | to send | to "
        "read |"
    )
    figures.text("| --- | --- | --- | --- | --- | --- |")
    for count in counts:
        with contextlib.ExitStack() as stack:
            env = stack.enter_context(
                planvec.make("CartPole-v1", num_workers=count, compiled=False, audit=0.0)
            )
            calls: dict[str, Callable[[], object]] = {
                "bare": scatter_and_gather(count, partial(work, 0), False, stack),
                "look first": scatter_and_gather(count, partial(work, 0), True, stack),
                "planvec": stepping(env, count),
            }
            cells = {name: 1e6 * seconds for name, seconds in median_times(calls, 50).items()}
            for name, seconds in zip(("to send", "to read"), callers_time(env, count), strict=True):
                cells[name] = 1e6 * seconds / count
            figures.text(f"| {count} | " + " | ".join(f"{cell:.0f} us" for cell in cells.values()) + " |")
            for name, cell in cells.items():
                figures.figure(f"{count} processes/{name}/us", cell)


def main() -> None:
    """Measure all mechanisms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = os.cpu_count() or 1
    counts = sorted({count for count in (1, 2, 4, 8, cores - 1, cores) if 1 <= count <= cores})
    parser.add_argument("--processes", nargs="+", type=int, default=counts, help="of the last table")
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    for turns in WORK_ITERATIONS:
        started_at = time.perf_counter()
        for _ in range(100):
            work(turns)
        alone = (time.perf_counter() - started_at) / 100
        with contextlib.ExitStack() as stack:
            for name, seconds in median_times(mechanisms(stack, turns), 100).items():
                over = seconds - alone
                figures.text(f"{alone * 1e6:6.1f} us of work   {name:20s} + {over * 1e6:6.1f} us")
                figures.figure(f"{turns} turns of work/{name}/us", over * 1e6)
    measure_many(figures, arguments.processes)


if __name__ == "__main__":
    main()
