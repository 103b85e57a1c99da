"""Objects that states hold in a short form: generators, large arrays, emulator memory."""

from __future__ import annotations

import copy
import itertools
import os
import re
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, HERE, PROCESSES, Backend, quick_or_slow
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from marks import slow_after
from walks import shuffled_steps

import planvec
from planvec.codecs.differences import Differences
from planvec.codecs.generic.pickling import check_copyable
from planvec.codecs.generic.short_forms import Reading, ShortForms, Tables, compress_state, expand_state


@pytest.fixture(scope="module", params=quick_or_slow(BACKENDS, [HERE[0], PROCESSES[0]]))
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.param
    return opened


class Scalar(gymnasium.Env[Any, Any]):
    """Observes one number, which the subclasses compute."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)
    time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.begin(seed)
        return np.zeros(1), {}

    def begin(self, seed: int | None) -> None:
        return

    def step(self, action: Any) -> Any:
        self.time += 1
        value = float(self.value(int(action)))
        return np.array([value]), value, self.time == 60, False, {}

    def value(self, action: int) -> float:
        raise NotImplementedError


def assert_exact(backend: Backend, make: Callable[[], Any], num_steps: int = 60) -> None:
    """Steps from shuffled states must give what Gymnasium's own loop gives."""
    with backend.open(make) as env:
        out, expected, _, _ = shuffled_steps(env, make, seed=4, num_steps=num_steps)
        assert out.rewards.tolist() == [outcome[1] for outcome in expected]


# -- RandomState --------------------------------------------------------------------------------------


class DrawsMuch(Scalar):
    """Draws from two generators, one of them made anew by every reset, and normal numbers in pairs."""

    def __init__(self) -> None:
        self.old = np.random.RandomState(7)

    def begin(self, seed: int | None) -> None:
        self.new = np.random.RandomState(seed)
        self.old.seed(seed)
        self.same = self.new

    def value(self, action: int) -> float:
        if self.time % 9 == 0:
            self.new, self.old = self.old, self.new
        drawn = self.new.normal() + self.old.uniform(size=100 * action).sum()
        return float(drawn + self.same.randint(10))


def test_generators_of_numpys_old_kind_are_exact_in_any_number(backend: Backend) -> None:
    assert_exact(backend, DrawsMuch)


def test_a_state_holds_the_seed_of_a_generator_instead_of_its_words() -> None:
    with planvec.PlanEnv(DrawsMuch) as env:
        assert len(bytes(env.reset(seed=3).state)) < 1000


@pytest.mark.parametrize("seed", [0, 1, 624, 2**31, 2**32 - 1])
def test_the_words_of_a_seeded_generator_become_its_seed(seed: int) -> None:
    generator = np.random.RandomState(seed)
    for _ in range(4):
        words = generator.get_state()[1].tobytes()  # type: ignore[index,union-attr]
        assert len(compress_state(words)) == 5
        assert expand_state(compress_state(words)) == words
        generator.uniform(size=312)  # 624 words


@given(st.binary(min_size=2496, max_size=2496))
def test_other_words_are_kept_as_they_are(words: bytes) -> None:
    assert compress_state(words) == words
    assert expand_state(words) == words


def test_a_restored_generator_draws_what_the_saved_one_draws() -> None:
    forms = ShortForms()
    Reading.begin({}, forms)
    for seed in (0, [1, 2], None):
        generator = np.random.RandomState(seed)  # type: ignore[arg-type]
        for draws in (0, 1, 3, 700, 3000):
            generator.normal(size=draws)
            read, (_, data) = forms.reduce(generator)
            assert read == Reading.random_state
            assert isinstance(data, bytes)
            expected = copy.deepcopy(generator).normal(size=5)
            restored = Reading.random_state(1, data)
            assert forms.reduce(restored)[1][1] == data
            assert restored.normal(size=5).tolist() == expected.tolist()
            # Used since it was restored, also when only the spare normal number was taken.
            again = Reading.random_state(1, data)
            assert again.normal(size=5).tolist() == expected.tolist()


# -- large arrays -------------------------------------------------------------------------------------


class Prices(Scalar):
    """Reads from a large array, and changes a copy of it, or itself, at some steps."""

    def __init__(self, changes_itself: bool = False) -> None:
        self.prices = np.random.default_rng(0).random(4000)
        self.names = np.array([f"number {number}" for number in range(3000)], dtype=object)
        self.changes_itself = changes_itself

    def value(self, action: int) -> float:
        if self.changes_itself and self.time in (20, 40):
            self.prices[self.time : self.time + 30] = action
        if self.time == 30 and not self.changes_itself:
            self.prices = self.prices.copy()
            self.prices[31] = 5
        return float(self.prices[self.time]) + len(self.names[self.time])


@pytest.mark.parametrize("changes_itself", slow_after(1, [False, True]))
def test_large_arrays_are_exact_whether_they_change_or_not(backend: Backend, changes_itself: bool) -> None:
    def make() -> Any:
        env = Prices(changes_itself)
        env.reset(seed=0)
        return env

    class Fresh(gymnasium.Wrapper):
        """Begins with the same array in every reset, as a new environment does."""

        def reset(self, **kwargs: Any) -> Any:
            self.unwrapped.prices = np.random.default_rng(0).random(4000)  # type: ignore[attr-defined]
            return super().reset(**kwargs)

    assert_exact(backend, (lambda: Fresh(make())) if changes_itself else make)


@pytest.mark.slow
def test_arrays_that_never_change_are_no_part_of_states() -> None:
    with planvec.PlanEnv(Prices) as env:
        start = env.reset(seed=0)
        assert len(bytes(start.state)) < 1500
        late = env.rollout_batch(start.state, actions=np.zeros((1, 35), int)).final_states[0]
        assert len(bytes(late)) > 32000


@pytest.mark.slow
def test_a_state_of_an_environment_with_other_data_is_refused() -> None:
    class Others(Prices):
        def __init__(self) -> None:
            super().__init__()
            self.prices += 1

    Others.__name__ = "Prices"
    with planvec.PlanEnv(Prices) as one, planvec.PlanEnv(Others) as other:
        state = one.reset(seed=0).state
        with pytest.raises(planvec.PlanvecError, match="refers to data"):
            other.step_batch([0], state)


def test_the_differences_of_two_blocks_give_the_second_one() -> None:
    rng = np.random.default_rng(0)
    first = rng.bytes(1003)
    differences = Differences(first)
    for changed in (0, 1, 1002, slice(3, 700)):
        block = bytearray(first)
        block[changed] = 7 if isinstance(changed, int) else bytes(697)  # type: ignore[index,assignment]
        assert differences.restore(differences.get(bytes(block))) == bytes(block)
    assert differences.restore(differences.get(b"another size")) == b"another size"
    assert len(differences.get(first)) == 4


# -- costs --------------------------------------------------------------------------------------------


class Heavy(Scalar):
    """Its states take 2 MB, since it makes a large array in every reset."""

    def begin(self, seed: int | None) -> None:
        self.field = np.zeros(250_000)
        self.small = [0.0]

    def value(self, action: int) -> float:
        self.field[self.time] += action
        return float(self.field.sum())


class Slow(Scalar):
    """Saving it takes 30 ms."""

    def __init__(self) -> None:
        self.clock = SlowPickle()

    def value(self, action: int) -> float:
        return float(action)


class SlowPickle:
    def __init__(self) -> None:
        self.a = 1

    def __getstate__(self) -> Any:
        time.sleep(0.03)
        return {"a": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_class", "text"),
    [
        (Heavy, r"a state takes 2\.0 MB.*attribute is Heavy\.field.*codec=planvec\.Copied\(\[\"field\"\]\)"),
        (Slow, r"saving and restoring a state takes \d+\.\d ms.*attribute is Slow\.clock"),
    ],
)
def test_who_opens_an_environment_with_expensive_states_is_warned_once(env_class: Any, text: str) -> None:
    with pytest.warns(UserWarning, match="codec") as caught, planvec.make(env_class, num_workers=2):
        pass
    assert len(caught) == 1
    assert re.search(text, str(caught[0].message), re.DOTALL)


# -- what cannot be copied ----------------------------------------------------------------------------


def test_libraries_whose_copies_are_not_exact_are_refused_with_advice() -> None:
    """Named by their classes. The libraries themselves are in `benchmarks/foreign_environments.py`."""
    space = types.new_class("Space", exec_body=lambda body: body.update(__module__="pymunk.space"))
    own = types.new_class("OwnSpace", (space,))
    for kind in (space, own):
        with pytest.raises(planvec.UnsupportedEnvError, match='contacts of the bodies.*codec="replay"'):
            check_copyable(kind)

    class Falls(Scalar):
        def begin(self, seed: int | None) -> None:
            self.space = own()

        def value(self, action: int) -> float:
            return float(action)

    with pytest.raises(planvec.UnsupportedEnvError, match=r"Falls\.space holds a .*OwnSpace"):
        planvec.PlanEnv(Falls)
    planvec.PlanEnv(Falls, codec="replay").close()


class Cycles(Scalar):
    """Goes round in cycles, one of which it begins anew at every reset."""

    def __init__(self) -> None:
        self.endless = itertools.cycle([0, 1, 2, 1])

    def begin(self, seed: int | None) -> None:
        self.anew = itertools.cycle(iter(range(5)))

    def value(self, action: int) -> float:
        return float(next(self.endless) + (10 * next(self.anew) if action else 0))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 pickles no iterators of itertools")
@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning")
def test_cycles_go_on_where_they_were(backend: Backend) -> None:
    assert_exact(backend, Cycles)


class NeverSeeds(Scalar):
    """Has a generator of its own, and leaves `np_random` alone."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.RandomState(seed)
        self.time = 0
        return np.zeros(1), {}

    def value(self, action: int) -> float:
        return float(self.random.normal())


def test_an_environment_that_never_seeds_np_random_is_exact(backend: Backend) -> None:
    assert_exact(backend, NeverSeeds)


class SharedFromTheStart(Scalar):
    """Holds a view of one of its arrays from the start. It has influence only after 300 steps."""

    def __init__(self) -> None:
        self.table = np.zeros(500)
        self.view = self.table[3:5]

    def begin(self, seed: int | None) -> None:
        self.table[:] = 0

    def value(self, action: int) -> float:
        self.view[0] += action
        return float(self.table[3]) if self.time > 300 else 0.0


def test_sharing_that_is_cut_before_the_first_reset_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="is a view of another one"):
        planvec.PlanEnv(SharedFromTheStart)


# -- arrays and generators that share parts -------------------------------------------------------------


class TwoNames(Scalar):
    """Holds one large array and a view of all of it, and changes it late."""

    def __init__(self) -> None:
        self.grid = np.zeros((80, 30))
        self.flat = self.grid.ravel()

    def begin(self, seed: int | None) -> None:
        self.grid[:] = 0

    def value(self, action: int) -> float:
        if self.time > 300:
            self.grid[1, 1] += 1
        return float(self.flat[31])


def test_a_large_array_with_a_view_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="is a view of another one"):
        planvec.PlanEnv(TwoNames)


class ChangesForm(Scalar):
    """Reshapes or locks a large array in place, late in an episode."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.table = np.arange(4096.0)

    def begin(self, seed: int | None) -> None:
        self.table = np.arange(4096.0) if self.table.shape != (4096,) else self.table

    def value(self, action: int) -> float:
        if self.time == 30:
            if self.how == "reshape":
                with warnings.catch_warnings():  # of NumPy 2.5
                    warnings.simplefilter("ignore", DeprecationWarning)
                    self.table.shape = (64, 64)
            else:
                self.table.flags.writeable = False
        return float(len(self.table) + self.table.flat[self.time])


@pytest.mark.parametrize("how", ["reshape", "lock"])
def test_a_large_array_whose_form_changes_is_exact(backend: Backend, how: str) -> None:
    assert_exact(backend, lambda: ChangesForm(how))


def test_a_large_array_that_was_resized_is_read_where_it_is_now() -> None:
    tables = Tables()
    array = np.arange(4096.0)
    tables.add(array)
    name = tables.name_of(array)
    assert name is not None
    array.resize(200_000, refcheck=False)
    assert tables.name_of(array) is None
    assert tables.resolve(name).tolist() == np.arange(4096.0).tolist()


class SharesParts(Scalar):
    """Spawns generators from one seed sequence, and draws from one Mersenne Twister in two ways."""

    def begin(self, seed: int | None) -> None:
        self.sequence = np.random.SeedSequence([seed or 0, 7])
        self.left, self.right = (np.random.Generator(np.random.PCG64(self.sequence)) for _ in range(2))
        self.old = np.random.RandomState(np.random.MT19937(seed))
        self.new = np.random.Generator(self.old._bit_generator)

    def value(self, action: int) -> float:
        spawned = self.left.spawn(1)[0].random() + self.sequence.spawn(1)[0].generate_state(1)[0]
        return float(spawned + self.right.random() + self.old.random() + self.new.random())


def test_generators_that_share_parts_are_exact(backend: Backend) -> None:
    assert_exact(backend, SharesParts)


class NestedEntropy(Scalar):
    """Seeds a generator with text among numbers, and with nested ones where NumPy (before 2.5) takes them."""

    def begin(self, seed: int | None) -> None:
        try:
            nested: Any = np.random.SeedSequence([seed or 0, [1, 2]])
        except TypeError:
            nested = np.random.SeedSequence([seed or 0, 1, 2])
        self.generators = [np.random.default_rng(nested), np.random.default_rng([3, "12"])]

    def value(self, action: int) -> float:
        return float(sum(generator.random() for generator in self.generators))


def test_generators_may_be_seeded_with_anything_that_numpy_takes(backend: Backend) -> None:
    assert_exact(backend, NestedEntropy)


# -- names that every state would hold ----------------------------------------------------------------


class Sensor:
    """An object inside the environment whose class, method and attribute names every pickle would hold."""

    def __init__(self) -> None:
        self.value_before_the_last_step = 0.0
        self.kind = "value_before_the_last_step"  # equal to the name of an attribute


class ManyNames(Scalar):
    """Has more names than planvec numbers, some of which come and go."""

    def __init__(self) -> None:
        self.first, self.second = Sensor(), Sensor()
        for number in range(400):
            setattr(self, f"attribute_{number}", number)
        self.kind: Any = type(self.first)

    def begin(self, seed: int | None) -> None:
        self.second = Sensor()
        self.first.value_before_the_last_step = float(seed or 0)

    def value(self, action: int) -> float:
        sensor = (self.first, self.second)[self.time % 2]
        sensor.value_before_the_last_step += action + getattr(sensor, f"extra_{self.time - 1}", 0.5)
        setattr(sensor, f"extra_{self.time}", action)
        setattr(self, f"attribute_{self.time}", self.kind())
        return sensor.value_before_the_last_step


class FewNames(Scalar):
    def __init__(self) -> None:
        self.sensor = Sensor()
        self.sensor.kind = "thermometer"

    def value(self, action: int) -> float:
        self.sensor.value_before_the_last_step += action
        return self.sensor.value_before_the_last_step


def test_names_of_attributes_and_classes_are_exact_in_any_number(backend: Backend) -> None:
    assert_exact(backend, ManyNames)


def test_states_do_not_hold_the_names_of_attributes_and_classes() -> None:
    with planvec.make(FewNames, num_workers=0) as env:
        state = bytes(env.reset(seed=0).state)
    assert b"value_before_the_last_step" not in state
    assert b"Sensor" not in state
    assert len(state) < 300


class NamesByProcess(Scalar):
    """Has an attribute whose name depends on the process."""

    def __init__(self) -> None:
        setattr(self, f"worker_{os.getpid()}", 0.0)

    def value(self, action: int) -> float:
        return float(action)


def test_attributes_whose_names_depend_on_the_process_are_refused() -> None:
    with pytest.raises(planvec.WorkerStartError, match="the same environment in every process"):
        planvec.make(NamesByProcess, num_workers=2)


class OwnNames:
    """Takes the names of its attributes as they were pickled, as the spaces of Gymnasium and gym do."""

    def __init__(self) -> None:
        self.name_of_one = 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(dict(state))


class HoldsOwnNames(Scalar):
    def __init__(self) -> None:
        self.part = OwnNames()

    def value(self, action: int) -> float:
        self.part.name_of_one += 1
        return 0.0


def test_names_of_attributes_that_were_pickled_are_numbered_like_others() -> None:
    with planvec.PlanEnv(HoldsOwnNames) as env:
        state = env.step_batch([0], env.reset(seed=0).state).new_states[0]
        assert b"name_of_one" not in bytes(state)
