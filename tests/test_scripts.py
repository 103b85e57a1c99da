"""Scripts and notebooks: what they define and register reaches workers that never run them."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import pytest
from marks import slow_after
from methods import METHODS

import planvec

ENVIRONMENT = """
import gymnasium, numpy as np, planvec, sys
from planvec.vector import AsyncVectorEnv, EnvPool

METHOD = "template"

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, gain=1.0):
        self.gain = gain

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return np.array([0.0]), {}

    def step(self, action):
        self.x += int(action)
        return np.array([float(self.x)]), self.gain * value(self.x), False, False, {}

def value(x):
    return float(x)

def rewards(env):
    with env:
        return env.step_batch([0, 1, 2]).rewards.tolist()
"""


def run(code: str, folder: Path, method: str, how: str = "file") -> None:
    """Run a script, which prints "fine" and nothing else."""
    code = ENVIRONMENT.replace('"template"', repr(method)) + textwrap.dedent(code) + '\nprint("fine")\n'
    script = folder / "script.py"
    script.write_text(code)
    repl = f"exec({code!r})\n"
    command = {"file": [str(script)], "-c": ["-c", code], "stdin": ["-"], "repl": ["-i", "-q"]}[how]
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        input={"stdin": code, "repl": repl}.get(how),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
    )
    errors = done.stderr.replace(">>> ", "").strip()  # the prompts of the interpreter
    assert (done.stdout, errors) == ("fine\n", "")


# -- ids that a script registers ---------------------------------------------------------------------

IDS = """
class Doubled(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    def __init__(self, env):
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 2 * reward, *rest

def make_walk(gain):
    return Walk(gain)

class Nested(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("Class-v0").unwrapped)

gymnasium.register("Class-v0", entry_point=Walk)
gymnasium.register("walks/Named-v3", entry_point="__main__:Walk", kwargs={"gain": 3.0})
gymnasium.register("Function-v0", entry_point="__main__:make_walk", kwargs={"gain": 5.0})
gymnasium.register("Lambda-v0", entry_point=lambda: Walk(7.0))
gymnasium.register("Nested-v0", entry_point=Nested)
del gymnasium.registry["FrozenLake-v1"]
gymnasium.register("FrozenLake-v1", entry_point=Walk, kwargs={"gain": 9.0})
spec = Doubled(gymnasium.make("walks/Named-v3")).spec
gains = {
    "Class-v0": 1.0, "walks/Named-v3": 3.0, "Function-v0": 5.0, "Lambda-v0": 7.0, "Nested-v0": 1.0,
    "FrozenLake-v1": 9.0,
}
"""

FACES = """
for env_id, gain in gains.items():
    name, _, version = env_id.partition("-v")
    computed = lambda: gymnasium.make(f"{name}-v{int(version)}")
    expected = [0.0, gain, 2 * gain]
    for make in (computed, env_id, gymnasium.spec(env_id)):
        assert rewards(planvec.make(make, num_workers=1, start_method=METHOD)) == expected, env_id
    assert rewards(planvec.make(computed, num_workers=0)) == expected
    for num_workers in (0, 1, 2):
        options = {"num_workers": num_workers, "start_method": METHOD if num_workers else None}
        pool = EnvPool([computed] * 3, **options)
        pool.reset(seed=0)
        assert pool.step(np.array([0, 1, 2])).rewards.tolist() == expected, env_id
        pool.close()
    envs = AsyncVectorEnv([computed] * 3, context=METHOD)
    envs.reset(seed=0)
    assert envs.step(np.array([0, 1, 2]))[1].tolist() == expected, env_id
    envs.close()
    workers = [
        planvec.ExternalProcess(lambda: planvec.PlanEnv(computed), start_method=METHOD) for _ in range(2)
    ]
    assert rewards(planvec.BatchEnv(workers)) == expected, env_id
for num_workers in (0, 1):
    method = METHOD if num_workers else None
    env = planvec.make(lambda: gymnasium.make(spec), num_workers=num_workers, start_method=method)
    assert rewards(env) == [0.0, 6.0, 12.0]
"""


@pytest.mark.parametrize("method", METHODS)
def test_an_id_of_a_script_is_known_in_every_worker(method: str, tmp_path: Path) -> None:
    run(IDS + 'gains = {"walks/Named-v3": 3.0}\n' + FACES, tmp_path, method)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "-c", "stdin", "repl"])
def test_an_id_of_a_script_is_known_however_python_is_started(how: str, tmp_path: Path) -> None:
    run(IDS + FACES, tmp_path, "template", how)


def test_the_functions_of_a_script_share_their_variables_with_its_registered_classes(tmp_path: Path) -> None:
    code = """
    SETTINGS = {}

    def value(x):
        return SETTINGS["gain"] * x

    def factory():
        SETTINGS["gain"] = 4.0
        return gymnasium.make("Walk-v0")

    gymnasium.register("Walk-v0", entry_point="__main__:Walk")
    for method in ("template", "fork"):
        assert rewards(planvec.make(factory, num_workers=1, start_method=method)) == [0.0, 4.0, 8.0]
    """
    run(code, tmp_path, "template")


def test_ids_of_a_package_that_registers_them_when_it_is_imported_cause_no_warning(tmp_path: Path) -> None:
    (tmp_path / "walks.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv as Lake\n"
        "for name in ('One-v0', 'Two-v0'):\n"
        "    gymnasium.register(name, entry_point='walks:Lake')\n"
    )
    code = """
    import walks
    del gymnasium.registry["Two-v0"]
    gymnasium.register("Two-v0", entry_point="walks:Lake", kwargs={"map_name": "8x8"})
    for env_id, size in (("One-v0", 16), ("Two-v0", 64)):
        with planvec.make(lambda: gymnasium.make(env_id), num_workers=1) as env:
            assert env.observation_space.n == size
        envs = AsyncVectorEnv([lambda: gymnasium.make(env_id)] * 3, num_workers=1)
        assert [env.desc.size for env in envs.call("__getattribute__", "unwrapped")] == [size] * 3
        envs.close()
    """
    run(code, tmp_path, "template")


def test_an_id_that_cannot_be_sent_says_so_only_where_it_is_made() -> None:
    gymnasium.register("Connected-v0", entry_point="gymnasium.envs:CartPole", kwargs={"s": socket.socket()})
    try:
        with planvec.make(lambda: gymnasium.make("CartPole-v1"), num_workers=1) as env:
            env.step_batch([0, 1])
        with pytest.raises(planvec.UnsupportedEnvError, match=r"Connected-v0: .*'socket'.*in the factory"):
            planvec.make(lambda: gymnasium.make("Connected-v0"), num_workers=1)
    finally:
        gymnasium.registry.pop("Connected-v0").kwargs["s"].close()


# -- what a script defines ---------------------------------------------------------------------------

DEFINITIONS = """
import abc, collections, contextlib, dataclasses, enum, functools, logging, threading, typing

def checked(function):
    # Looked up when it is called.
    CHECKS.append(function)
    return function

CHECKS = []

@checked
@functools.lru_cache(maxsize=5, typed=True)
def distance(x=1):
    return x + distance.cache_parameters()["maxsize"] - 5

@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@checked
def recursion(x=1):
    return x * fibonacci(2)

class Cached:
    @functools.cached_property
    def one(self):
        return 1

    @functools.cache
    def method(self, x):
        return x

    @staticmethod
    @functools.cache
    def static(x):
        return x

    @functools.singledispatchmethod
    def sort(self, x):
        return 0

    @sort.register
    def _(self, x: int):
        return x

    def scaled(self, by, x):
        return by * x

    once = functools.partialmethod(scaled, 1)

CACHED = Cached()

@checked
def cached(x=1):
    return CACHED.one * CACHED.method(x) * Cached.static(1) * CACHED.sort(1) * CACHED.once(1)

@functools.singledispatch
def size(x):
    return 0

@size.register
def _(x: int):
    return x

@size.register(list)
def _(x):
    return sum(size(part) for part in x)

@checked
def dispatched(x=1):
    return size([x, [], "no size"])

def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

@checked
@logged
def wrapped(x=1):
    return x

@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    parts: list = dataclasses.field(default_factory=list)

@checked
def data(x=1):
    point = dataclasses.replace(Point(0), x=x)
    assert dataclasses.asdict(point) == {"x": x, "parts": []}
    assert [field.default is dataclasses.MISSING for field in dataclasses.fields(Point)] == [True, True]
    return point.x

class Colour(enum.Enum):
    RED = 1

class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()

class Row(typing.NamedTuple):
    x: int = 1

Pair = collections.namedtuple("Pair", "a b")

@checked
def records(x=1):
    assert (Flags.A | Flags.B) & Flags.B and Pair(1, 2)._replace(b=3).b == 3
    return Colour.RED.value * Row(x).x

@typing.runtime_checkable
class Sized(typing.Protocol):
    def size(self): ...

class Shape(abc.ABC):
    @abc.abstractmethod
    def size(self): ...

class Dot(Shape):
    def size(self):
        return 1

T, P, Ts = typing.TypeVar("T"), typing.ParamSpec("P"), typing.TypeVarTuple("Ts")
Number = typing.NewType("Number", int)

class Box(typing.Generic[T]):
    def __init__(self, content: T):
        self.content = content

def same(function: typing.Callable[P, T]) -> typing.Callable[P, T]:
    return function

def count(*args: typing.Unpack[Ts]):
    return len(args)

@checked
@same
def typed(x: Number = 1) -> Number:
    assert isinstance(Dot(), Sized)
    return Box(Number(x)).content * Dot().size() * count(1)

@contextlib.contextmanager
def opened():
    yield 1

LOCK, REENTRANT, EVENT, LOCAL = threading.Lock(), threading.RLock(), threading.Event(), threading.local()
LOCAL.one = 1
LOG = logging.getLogger("walk")
LOG.addHandler(logging.StreamHandler())
SQUARE = np.vectorize(lambda x: x * x)

@checked
def variables(x=1):
    LOG.debug("a step")
    EVENT.set()
    with opened() as one, LOCK, REENTRANT:
        return one * LOCAL.one * int(SQUARE(1))

def value(x):
    assert all(check() == 1 for check in CHECKS), [check() for check in CHECKS]
    return float(x)

with LOCK:  # the workers have one of their own
    assert rewards(planvec.make(Walk, num_workers=1, start_method=METHOD)) == [0.0, 1.0, 2.0]
envs = AsyncVectorEnv([Walk] * 3, num_workers=1, context=METHOD)
envs.reset(seed=0)
assert envs.step(np.array([0, 1, 2]))[1].tolist() == [0.0, 1.0, 2.0]
envs.close()
"""


@pytest.mark.parametrize("method", METHODS)
def test_what_a_script_defines_works_in_workers(method: str, tmp_path: Path) -> None:
    code = DEFINITIONS.replace("with LOCK:", "if True:") if method == "fork" else DEFINITIONS
    run(code, tmp_path, method)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["-c", "stdin", "repl"])
def test_what_is_defined_at_a_prompt_works_in_workers(how: str, tmp_path: Path) -> None:
    run(DEFINITIONS, tmp_path, "template", how)


def test_a_class_of_a_script_may_have_the_name_of_its_base(tmp_path: Path) -> None:
    code = """
    import collections

    class Place(collections.namedtuple("Place", "x y")):
        def total(self):
            return self.x + self.y

    class Named(Walk):
        def step(self, action):
            result = super().step(action)
            self.place = Place(self.x, 1)
            return *result[:4], {"place": self.place}

    with EnvPool([Named] * 2, num_workers=2) as pool:
        pool.reset(seed=0)
        infos = pool.step([1, 1])[4]
        assert type(infos["place"][0]) is Place and infos["place"][1].total() == 2
    """
    run(code, tmp_path, "template")


@pytest.mark.slow
def test_functions_of_a_script_that_numba_compiles_work_in_workers(tmp_path: Path) -> None:
    code = """
    import numba

    @numba.njit
    def half(x):
        return x / 2

    @numba.vectorize
    def double(x):
        return 2 * x

    @numba.njit
    def value(x):
        return half(double(float(x)))

    assert rewards(planvec.make(Walk, num_workers=1, start_method=METHOD)) == [0.0, 1.0, 2.0]
    """
    run(code, tmp_path, "template")


UNSENDABLE = """
import concurrent.futures, functools, multiprocessing, socket, sqlite3, subprocess, threading

class Store:
    def __init__(self):
        self.connections = [sqlite3.connect(":memory:", check_same_thread=False)]

class Registry:
    generator = (x for x in range(3))

DB = sqlite3.connect(":memory:", check_same_thread=False)
STORE = Store()
FILE = open(__file__, "rb")
OUT = open("out.txt", "w")
SOCKET = socket.socket()
GENERATOR = (x for x in range(3))
POOL = concurrent.futures.ThreadPoolExecutor(1)
PROCESS = subprocess.Popen(["sleep", "0"])
THREAD = threading.Thread(target=print)
SHARED = {"locks": [multiprocessing.Lock()]}
PICK = np.frompyfunc(lambda x: x, 1, 1)

uses = {
    "'DB', which <lambda> uses": lambda: DB and Walk(),
    "'STORE.connections', which <lambda> uses": lambda: STORE and Walk(),
    "'FILE'": lambda: FILE and Walk(),
    "'OUT'": lambda: OUT and Walk(),
    "'SOCKET'": lambda: SOCKET and Walk(),
    "'GENERATOR'": lambda: GENERATOR and Walk(),
    "'POOL": lambda: POOL and Walk(),
    "'PROCESS'": lambda: PROCESS and Walk(),
    "'THREAD'": lambda: THREAD and Walk(),
    "'SHARED'": lambda: SHARED and Walk(),
    "'PICK'": lambda: PICK and Walk(),
    "Registry.generator": lambda: Registry and Walk(),
    "'opened', which <lambda> uses": lambda opened=DB: opened and Walk(),
    "an object of type Connection": functools.partial(Walk, DB),
}
"""


def test_a_variable_that_cannot_be_sent_is_named_with_the_cure(tmp_path: Path) -> None:
    code = """
    for name, use in uses.items():
        for make in (planvec.make, lambda use, **options: AsyncVectorEnv([use], num_workers=1)):
            try:
                make(use, num_workers=1)
            except planvec.WorkerStartError as error:
                text = str(error)
                assert name in text and "0x" not in text.partition("cannot be pickled")[0], text
                assert 'in the factory, or move what uses it to a module' in text, text
                assert 'or pass start_method="fork"' in text, text
            else:
                raise AssertionError(name)
    """
    run(UNSENDABLE + textwrap.dedent(code) + CLOSE, tmp_path, "template")


CLOSE = """
for resource in (DB, STORE.connections[0], FILE, OUT, SOCKET):
    resource.close()
PROCESS.wait()
"""


@pytest.mark.parametrize("name", slow_after(3, ["DB", "FILE", "GENERATOR", "OUT", "POOL", "SOCKET", "STORE"]))
def test_a_forked_worker_needs_nothing_sent(name: str, tmp_path: Path) -> None:
    code = f"""
    def value(x):
        assert {name}
        return float(x)

    from pathlib import Path
    assert Path(__file__).exists()
    factory = uses[next(name for name in uses if {name!r} in name)]
    assert rewards(planvec.make(factory, num_workers=1, start_method="fork")) == [0.0, 1.0, 2.0]
    import logging
    logging.getLogger("planvec").setLevel(logging.ERROR)  # it tells of processes
    envs = AsyncVectorEnv([factory] * 3, num_workers=1, context="fork")
    envs.reset(seed=0)
    assert envs.step(np.array([0, 1, 2]))[1].tolist() == [0.0, 1.0, 2.0]
    envs.close()
    """
    run(UNSENDABLE + textwrap.dedent(code) + CLOSE, tmp_path, "fork")


def test_an_object_that_is_pickled_by_its_name_in_a_script_is_named(tmp_path: Path) -> None:
    code = """
    class Missing:
        def __reduce__(self):
            return "MISSING"

    MISSING = Missing()
    try:
        planvec.make(lambda: MISSING and Walk(), num_workers=1)
    except planvec.WorkerStartError as error:
        assert "MISSING is pickled by its name" in str(error) and "make it in the factory" in str(error)
    else:
        raise AssertionError
    """
    run(code, tmp_path, "template")


# -- classes that are noted where they are defined -----------------------------------------------------

REGISTERED = """
CLASSES = {}

class Base(Walk):
    def __init_subclass__(cls):
        CLASSES[cls.__name__] = cls

class Doubled(Base):
    def step(self, action):
        return super().step(2 * action)

gymnasium.register("Doubled-v0", entry_point=lambda **kwargs: CLASSES["Doubled"](**kwargs))

def make():
    return gymnasium.make("Doubled-v0")

for num_workers in (0, 1):
    env = AsyncVectorEnv([make] * 2, num_workers=num_workers)
    env.reset(seed=0)
    assert env.step([1, 2])[1].tolist() == [2, 4]
    env.close()
    assert CLASSES == {"Doubled": Doubled}
for start_method in (METHOD, "fork"):
    for _ in range(2):
        assert rewards(planvec.make(make, num_workers=1, start_method=start_method)) == [0, 2, 4]
        assert CLASSES == {"Doubled": Doubled}
assert Base.__subclasses__() == [Doubled]
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_class_of_a_script_is_not_defined_a_second_time(method: str, tmp_path: Path) -> None:
    run(REGISTERED, tmp_path, method)
