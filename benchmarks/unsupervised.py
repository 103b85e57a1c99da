"""`Unsupervised`: steps batches with planvec's workers, and looks after none of them.

It uses the processes, slabs and messages of `planvec.backends.processes`, and nothing that knows of a crash,
a timeout or a retry. Its workers do not even note which row they have come to.
"""

from __future__ import annotations

import inspect
import pickle
import select
import textwrap
from collections import deque
from typing import Any

import planvec
from planvec.backends.messages import pickle_factory
from planvec.backends.processes.channel import DONE, READY, Poller
from planvec.backends.processes.requests import FORMS, read_answer
from planvec.backends.processes.slab import NUM_SLOTS, Slab
from planvec.backends.processes.starting import DEFAULT_START_METHOD, Child, capture_spec
from planvec.rows import Answer, Columns, StepBatch, check_step, merge_columns
from planvec.stepping import RowLoop, row_loop

__all__ = ["Unsupervised"]


def careless_env(env_id: str) -> planvec.PlanEnv:
    """Return a `PlanEnv` whose loop does not note which row is at work. Called in the worker."""
    source = textwrap.dedent(inspect.getsource(RowLoop._step_each))
    mark = "progress[ROW] = row"
    assert source.count(mark) == 1
    scope = dict(vars(row_loop))
    exec(source.replace(mark, "pass"), scope)
    env = planvec.PlanEnv(env_id, info_keys=(), compiled=False)
    loop = env.stepper.loop
    loop._step_each = scope["_step_each"].__get__(loop)  # type: ignore[method-assign]
    return env


class Worker:
    """Sends chunks to one worker process, and reads its answers.

    Args:
        factory: The pickled factory of a `PlanEnv`.
        name: For process listings.

    Attributes:
        about: The description of its environment.
        capacity: The most rows of a chunk.
        fileno: Becomes readable when an answer comes.
    """

    def __init__(self, factory: bytes, name: str) -> None:
        self._child = Child(capture_spec(factory, name, ()), DEFAULT_START_METHOD)
        self._channel = self._child.channel
        self._channel.wait()
        frame = self._channel.receive()
        assert frame is not None
        assert frame.verb == READY
        self.about = pickle.loads(frame.payload)
        slab = Slab(self.about, self._child.memory)
        self._slots, self.capacity = slab.slots, slab.capacity
        self._sent: deque[tuple[int, slice]] = deque()
        self.fileno = self._channel.fileno()

    def send(self, request: StepBatch, rows: slice, index: int) -> None:
        """Send some rows of a request, in a slot that is free."""
        part = request.part(rows)
        form, slot = FORMS[type(part)], self._slots[index].first(part.num_rows)
        payload = form.write(part, slot)
        self._channel.send(0, form.verb, index, part.num_rows, payload)
        self._sent.append((index, rows))

    def receive(self) -> tuple[int, slice, Answer]:
        """Read an answer, which is there; returns the slot, the rows, and the answer in that slot."""
        frame = self._channel.receive()
        assert frame is not None
        assert frame.verb == DONE
        index, rows = self._sent.popleft()
        return index, rows, read_answer(self._slots[index].first(frame.num_rows), frame.payload)

    def close(self) -> None:
        """End the process."""
        self._child.end()


class Unsupervised:
    """Steps batches of one environment with worker processes.

    Args:
        env_id: The environment.
        num_workers: At least 1.

    Attributes:
        num_chunks: Chunks of equal size that a batch is cut into; more where these do not fit.
    """

    def __init__(self, env_id: str, num_workers: int) -> None:
        self.num_chunks = num_workers
        factory = pickle_factory(lambda: careless_env(env_id))
        self._workers = [Worker(factory, f"worker-{index}") for index in range(num_workers)]
        self._by_fileno = {worker.fileno: worker for worker in self._workers}
        self._poll, self._poller = select.poll(), Poller()
        for fd in self._by_fileno:
            self._poll.register(fd, select.POLLIN)

    def step_batch(self, actions: Any, states: Any) -> planvec.Transitions:
        """Do what `BatchEnv.step_batch` does."""
        about = self._workers[0].about
        request = check_step(about, actions, states, 1, None, True, "raise")
        waiting = deque(self._cut(request.num_rows))
        num_missing = len(waiting)
        for slot in range(NUM_SLOTS):
            for worker in self._workers:
                if waiting:
                    worker.send(request, waiting.popleft(), slot)
        outputs = request.new_outputs(about)
        columns: dict[int, tuple[Columns, int]] = {}
        while num_missing:
            for worker in self._wait():
                slot, rows, answer = worker.receive()
                outputs.put(rows, answer.outputs)
                columns[rows.start] = answer.columns, rows.stop - rows.start
                num_missing -= 1
                if waiting:
                    worker.send(request, waiting.popleft(), slot)
        merged = merge_columns([columns[first] for first in sorted(columns)])
        return request.result(about, Answer(outputs, merged))

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    def _cut(self, num_rows: int) -> list[slice]:
        """Return the rows of each chunk."""
        most = min(-(-num_rows // self.num_chunks), self._workers[0].capacity)
        return [slice(first, min(first + most, num_rows)) for first in range(0, num_rows, most)]

    def _wait(self) -> list[Worker]:
        """Return workers that have answered: look for a moment, then sleep."""
        events = self._poller.spin(self._poll.poll) or self._poller.sleep(self._poll.poll)
        return [self._by_fileno[fd] for fd, _ in events]
