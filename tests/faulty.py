"""An environment that breaks in every way that is known, when it is told to."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class TwoArguments(Exception):
    """An exception that does not survive a pickle."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason, lambda: None)


class Speechless(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Bomb:
    """Kills the process that pickles it."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def __deepcopy__(self, memo: Any) -> Bomb:
        return self


class Torn:
    """A reward that kills the process that makes a number of it: half of the slab is written then."""

    def __float__(self) -> float:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0.0


class Faulty(gymnasium.Env):
    """Counts up; action `k > 0` commits fault `FAULTS[k]`, in episodes begun with `options=ARMED`.

    With `options={"once": path}` too, but only the one step that creates that file.
    With `options={"trace": path}` every step adds a line to it, the count.
    """

    FAULTS = (
        "none",
        "exception",
        "two_arguments",
        "sys_exit",
        "keyboard_interrupt",
        "unpicklable_info",
        "wrong_shape",
        "wrong_dtype",
        "broadcast",
        "os_exit",
        "segfault",
        "sigkill",
        "hang",
        "hang_in_c",
        "crash_in_reply",
        "crash_after_reply",
        "torn",
        "children",
        "leak",
        "wrong_reward",
        "speechless",
        "stop",
        "chatty",
    )
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(len(FAULTS))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        self.armed = bool(options)
        self.once = (options or {}).get("once")
        self.trace = (options or {}).get("trace")
        return self._observe(), {}

    def _observe(self) -> Any:
        return np.full(3, self.count, np.float32)

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.trace:
            with open(self.trace, "a") as file:
                file.write(f"{self.count}\n")
        fault = getattr(self, f"_{self.FAULTS[action]}", None) if self.armed else None
        observation, reward, info = self._observe(), 1.0, {"count": self.count}
        if fault is not None and self._is_due():
            changed = fault(info)
            observation = changed.get("observation", observation)
            reward = changed.get("reward", reward)
            info = changed.get("info", info)
        return observation, reward, self.count >= 100, False, info

    def _is_due(self) -> bool:
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _exception(self, info: Any) -> Any:
        raise ValueError("the rocket exploded")

    def _two_arguments(self, info: Any) -> Any:
        raise TwoArguments(7, "of two arguments")

    def _sys_exit(self, info: Any) -> Any:
        sys.exit(3)

    def _keyboard_interrupt(self, info: Any) -> Any:
        raise KeyboardInterrupt

    def _unpicklable_info(self, info: Any) -> Any:
        return {"info": {**info, "handle": (lambda: None)}}

    def _wrong_shape(self, info: Any) -> Any:
        return {"observation": np.zeros((2, 2), np.float32)}

    def _wrong_dtype(self, info: Any) -> Any:
        return {"observation": np.zeros(3, np.float64)}

    def _broadcast(self, info: Any) -> Any:
        return {"observation": np.zeros(1, np.float32)}

    def _os_exit(self, info: Any) -> Any:
        os._exit(0)

    def _segfault(self, info: Any) -> Any:
        ctypes.string_at(0)

    def _sigkill(self, info: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def _hang(self, info: Any) -> Any:
        while True:
            time.sleep(3600)

    def _hang_in_c(self, info: Any) -> Any:
        ctypes.PyDLL(None).sleep(3600)  # with Python's lock held: no thread and no handler can run

    def _crash_in_reply(self, info: Any) -> Any:
        return {"info": {**info, "bomb": Bomb()}}

    def _crash_after_reply(self, info: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # nobody handles it: it ends the process
        return {}

    def _torn(self, info: Any) -> Any:
        return {"reward": Torn()}

    def _children(self, info: Any) -> Any:
        children = [subprocess.Popen(["sleep", "3600"], start_new_session=own) for own in (False, True)]
        return {"info": {"pids": np.array([child.pid for child in children])}}

    def _leak(self, info: Any) -> Any:
        # As a C library leaks. A module variable would be shared, so that each row had a process of its own.
        library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p
        ctypes.memset(library.malloc(32 << 20), 1, 32 << 20)
        return {}

    def _wrong_reward(self, info: Any) -> Any:
        return {"reward": np.ones(2)}

    def _speechless(self, info: Any) -> Any:
        raise Speechless

    def _stop(self, info: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return {}

    def _chatty(self, info: Any) -> Any:
        return {"info": {**info, "text": "much to say " * 20_000}}


ARMED = {"armed": True}


def fault(name: str) -> int:
    """The action that commits a fault."""
    return Faulty.FAULTS.index(name)


def actions_with(name: str, num_rows: int = 8, row: int = 5) -> Any:
    """Actions that do nothing, but for one row."""
    actions = np.zeros(num_rows, int)
    actions[row] = fault(name)
    return actions


def once(path: Path) -> dict[str, Any]:
    """Options for a fault that is committed one single time."""
    return {"armed": True, "once": str(path)}
