"""Runners: forked processes that hold an environment at one state, so that it can be branched there again.

    worker  --fork-->  runner at S  --fork-->  runner at S, then a step  -->  runner at T
                        stays frozen

A runner is frozen until the worker asks it for a branch: a fork of it, which takes some steps, answers with
the result of the last one, and is a runner at the state that it has reached. Whatever the environment keeps
in the memory of its process is branched with it, exactly: memory of C libraries, surfaces, emulators.

Each runner ends with its worker, however that ends, and while its environment hangs: the kernel kills it when
the worker's end of their connection closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import pickle
import random
import select
import signal
import socket
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cloudpickle

from planvec import errors
from planvec.errors import RemoteTraceback, text_of

_log = logging.getLogger("planvec")

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_OWN_MEMORY = "/memfd:planvec"
_HEADER = 9  # bytes of a message before its payload: what it asks for, and the length of the payload

# -- Whether this process may fork ---------------------------------------------------------------------------


class _Host:
    """Holds what is known about this process, if it is a worker that may fork."""

    is_worker = False
    # its open files and shared memory from before it made an environment
    files: frozenset[str] = frozenset()
    memory: frozenset[str] = frozenset()
    runners: ClassVar[set[Runner]] = set()  # those that are open, of all environments


def may_fork() -> None:
    """Note that this process is a worker, before it makes an environment."""
    if sys.platform == "linux" and hasattr(socket, "send_fds"):
        _Host.is_worker = True
        _Host.files = frozenset(_open_files().values())
        _Host.memory = frozenset(_shared_memory())
        # Runners whose parent has ended become children of this process, which waits for them.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def is_worker() -> bool:
    """Return whether this process may fork."""
    return _Host.is_worker


def _open_files() -> dict[int, str]:
    """Return what each file descriptor of this process refers to."""
    links = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing
            links[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return links


def _link_of(sock: socket.socket) -> str:
    return os.readlink(f"/proc/self/fd/{sock.fileno()}")


def _mapped(flags: str) -> list[str]:
    """Return the paths of what is mapped with some flags."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return [line[-1] for line in lines if line[1] == flags]


def _shared_memory() -> list[str]:
    """Return the paths of what this process has mapped to write to it together with others."""
    return _mapped("rw-s")


def _is_written(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))
    return False


def _why_unsafe(known: Collection[str]) -> str:
    """Return why an environment cannot go on in a fork of this process; "" if nothing is known."""
    # Called right after a fork: libraries that prepare for one (OpenBLAS) have ended their threads. `known`:
    # connections of runners.
    names = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            names |= {(task / "comm").read_text().strip()} if int(task.name) != os.getpid() else set()
    # SDL has one for a timer, and one for sound that nobody hears.
    threads = sorted(name for name in names if not name.startswith("SDL"))
    if threads:
        return f"it has threads ({', '.join(threads)}), which a fork has not"
    for fd, link in _open_files().items():
        if link in _Host.files or link in known or link == "/dev/null":
            continue
        if link.startswith(("/dev/nvidia", "/dev/dri", "/dev/kfd")):
            return f"it uses a GPU ({link}), which a fork cannot"
        if link.startswith(("socket:", "pipe:")):
            return "it is connected to another process, to which a fork would be, too"
        is_written = link.startswith("/") and not link.startswith(_OWN_MEMORY) and _is_written(fd)
        # A library that was loaded from memory has a descriptor that nobody uses any more.
        if is_written and link not in _mapped("r-xp"):
            return f"it writes to {link}, to which a fork would, too"
    for path in _shared_memory():
        if path not in _Host.memory and not path.startswith(_OWN_MEMORY):
            return f"it shares memory ({path}), which a fork would change"
    return ""


def _reopen_files() -> None:
    """Give this process, a fork, positions of its own in the files that the environment reads."""
    for fd, link in _open_files().items():
        if link in _Host.files or not link.startswith("/") or not stat.S_ISREG(os.fstat(fd).st_mode):
            continue
        if _is_written(fd):
            continue  # refused
        own = os.open(f"/proc/self/fd/{fd}", fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_CLOEXEC)
        os.lseek(own, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own, fd, inheritable=os.get_inheritable(fd))
        os.close(own)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads, of which `_why_unsafe` knows more.
        warnings.simplefilter("ignore", DeprecationWarning)
        state = random.getstate()
        sys.stdout.flush()  # otherwise both would write what it holds
        pid = os.fork()
    if not pid:
        random.setstate(state)  # Python seeds it anew in forks
        _reopen_files()
    return pid


# -- Messages: a letter, the length of the payload, the payload, and perhaps a file descriptor ---------------

_BRANCH, _PLAY, _LOOK = b"B", b"P", b"L"
_DONE, _FAILED = b"D", b"F"


def _send(sock: socket.socket, verb: bytes, payload: bytes = b"", fd: int | None = None) -> None:
    header = verb + len(payload).to_bytes(_HEADER - 1, "little")
    if fd is None:
        sock.sendall(header + payload)
    else:
        socket.send_fds(sock, [header], [fd])
        sock.sendall(payload)


def _receive(sock: socket.socket) -> tuple[bytes, bytes, int | None]:
    """Receive a message; `EOFError` if the other end is closed."""
    header, fds, *_ = socket.recv_fds(sock, _HEADER, 1, socket.MSG_CMSG_CLOEXEC)
    while len(header) < _HEADER:
        header += _more(sock, _HEADER - len(header))
    payload, size = bytearray(), int.from_bytes(header[1:], "little")
    while len(payload) < size:
        payload += _more(sock, min(size - len(payload), 1 << 20))
    return header[:1], bytes(payload), fds[0] if fds else None


def _more(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size)
    if not data:
        raise EOFError
    return data


class _Failed(NamedTuple):
    """Describes an exception of the environment of a runner."""

    type_name: str
    detail: str
    text: str  # its formatted traceback

    @classmethod
    def of(cls, error: BaseException) -> _Failed:
        """Return the description of an exception, whose class may be one that cannot be pickled."""
        return cls(type(error).__name__, text_of(error), "".join(traceback.format_exception(error)))

    def to_error(self) -> Exception:
        """Return an exception with the same name and text."""
        known = getattr(errors, self.type_name, None) or type(self.type_name, (Exception,), {})
        error: Exception = known(self.detail)
        error.__cause__ = RemoteTraceback(self.text)
        return error


# -- In the process of a runner ------------------------------------------------------------------------------

Play = Callable[[Sequence[bytes]], object]  # performs events, and returns the result of the last one
Look = Callable[[Callable[[Any], object]], object]  # returns what a function returns for the environment


def _set_killed(sock: socket.socket, is_killed: bool) -> None:
    """Let the kernel kill this process when the worker's end of its connection closes, or no more."""
    # Only while the environment is at work: a message would kill it as well.
    fd = sock.fileno()
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if is_killed:
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        if select.select([fd], [], [], 0)[0]:  # it was closed before
            os._exit(0)
    else:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_ASYNC)


def _serve(sock: socket.socket, play: Play, look: Look) -> None:
    """Serve the worker as a runner at the present state, until it closes the connection."""
    before: Any = None
    try:
        while True:
            verb, payload, fd = _receive(sock)
            if verb == _BRANCH:
                assert fd is not None
                # From now on it only branches, and the kernel removes branches that have ended. They may wait
                # for processes of their own.
                if before is None:
                    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                try:
                    pid = _fork()
                except OSError:
                    pid = -1
                if pid:
                    os.close(fd)  # where there is no branch, the worker finds its end closed
                    continue
                signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)
                before = None
                sock.close()
                sock = socket.socket(fileno=fd)
            _set_killed(sock, True)
            verb, reply = _perform(sock, play, look, verb, payload)
            _set_killed(sock, False)
            _send(sock, verb, reply)
    finally:
        sock.close()


def _perform(sock: socket.socket, play: Play, look: Look, verb: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Perform what the worker asks for; return what to answer."""
    try:
        asked = pickle.loads(payload)
        answer = look(asked) if verb == _LOOK else play(asked)
    except BaseException as error:
        return _FAILED, pickle.dumps((os.getpid(), "", _Failed.of(error)))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    problem = _why_unsafe({_link_of(sock)})
    try:
        return _DONE, cloudpickle.dumps((os.getpid(), problem, answer), protocol=5)
    except Exception as error:
        problem = f"what it returns cannot be pickled ({type(error).__name__}: {error})"
        return _FAILED, pickle.dumps((os.getpid(), problem, _Failed.of(error)))


# -- In the worker -------------------------------------------------------------------------------------------


class Runner:
    """Represents a forked process that holds the environment at one state."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock, self.pid = sock, pid

    @property
    def private_bytes(self) -> int:
        """The memory that it shares with no other process; 0 if that is not known."""
        try:
            text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        except OSError:
            return 0
        lines = [line.split() for line in text.splitlines()]
        return sum(int(line[1]) << 10 for line in lines if line[0] in ("Private_Dirty:", "Private_Clean:"))


def _has_hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    return bool(poll.poll(0))


class Answer(NamedTuple):
    """Holds what a runner has answered."""

    value: Any
    error: Exception | None  # what the environment has raised; the runner has ended


class Runners:
    """Makes runners and asks them. Methods return None where one has ended without an answer."""

    _GRACE_SECONDS, _GRACE = 10.0, 100  # how long to wait for an answer: seconds, and times the usual time

    def __init__(self, play: Play, look: Look) -> None:
        self._play, self._look = play, look
        self._pids: set[int] = set()  # of runners that may have to be waited for
        self._usual = 0.0  # seconds that an answer takes
        self.waits = False  # whether to wait without a limit; else what does not answer for long has ended
        self.open = _Host.runners
        self.problem = ""  # why runners cannot be used

    def fork(self) -> Runner | None:
        """Return a runner at the state in which this process has the environment."""
        ours, theirs = socket.socketpair()
        try:
            pid = _fork()
        except OSError as error:  # no memory, or too many processes
            ours.close()
            theirs.close()
            _log.debug("no snapshot: %s", error)
            return None
        if not pid:
            try:
                for sock in (ours, *(runner.sock for runner in self.open)):
                    sock.close()
                with contextlib.suppress(EOFError, OSError):
                    _serve(theirs, self._play, self._look)
            finally:
                os._exit(0)  # nothing of the worker is closed or flushed here
        theirs.close()
        runner = Runner(ours, pid)
        self._pids.add(pid)
        self.open.add(runner)
        self.problem = _why_unsafe({_link_of(runner.sock) for runner in self.open})
        if self.problem:
            self.close(runner)
            return None
        return runner

    def branch(self, runner: Runner, events: Sequence[bytes]) -> tuple[Runner, Answer] | None:
        """Return a new runner that has started at the state of another, and has performed events."""
        ours, theirs = socket.socketpair()
        branch = Runner(ours, 0)
        self.open.add(branch)
        answer = None
        try:
            with theirs:
                _send(runner.sock, _BRANCH, pickle.dumps(events), theirs.fileno())
            answer = self._answer(branch, 1 + len(events))
        except OSError:  # it was killed
            self.close(branch)
        except BaseException:
            self.close(branch)
            raise
        if answer is not None:
            return branch, answer
        if _has_hung_up(runner.sock):
            self.close(runner)
        return None

    def play(self, runner: Runner, events: Sequence[bytes]) -> Answer | None:
        """Let a runner go on."""
        return self._ask(runner, _PLAY, pickle.dumps(events))

    def look(self, runner: Runner, function: Callable[[Any], object]) -> Answer | None:
        """Return what a function returns for the environment of a runner."""
        return self._ask(runner, _LOOK, cloudpickle.dumps(function))

    def _ask(self, runner: Runner, verb: bytes, payload: bytes) -> Answer | None:
        try:
            _send(runner.sock, verb, payload)
            return self._answer(runner)
        except OSError:
            self.close(runner)
            return None
        except BaseException:  # what it answers would be taken for the answer to something else
            self.close(runner)
            raise

    def _answer(self, runner: Runner, num_events: int = 1) -> Answer | None:
        started = time.perf_counter()
        grace = self._GRACE_SECONDS + self._GRACE * self._usual * num_events
        runner.sock.settimeout(None if self.waits else grace)
        try:
            verb, payload, _ = _receive(runner.sock)
            runner.pid, problem, value = pickle.loads(payload)
        except TimeoutError:
            self.problem = "its steps hang in a fork"
            self.close(runner)
            return None
        except (OSError, EOFError):  # it was killed, or there was no memory for it
            self.close(runner)
            return None
        except Exception as error:  # of a class with a faulty `__reduce__`
            self.close(runner)
            return Answer(None, error)
        self._pids.add(runner.pid)
        self._usual = max((time.perf_counter() - started) / num_events, 0.9 * self._usual)
        self.problem = problem
        if verb == _FAILED:
            self.close(runner)
            return Answer(None, value.to_error())
        return Answer(value, None)

    def close(self, runner: Runner) -> None:
        """End a runner, and remove what has ended among the children of this process."""
        self.open.discard(runner)
        runner.sock.close()
        for pid in [*self._pids]:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._pids.discard(pid)
            except ChildProcessError:  # a child of another runner, or already removed
                if not Path(f"/proc/{pid}").exists():
                    self._pids.discard(pid)
