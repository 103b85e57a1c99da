"""What a program changes after opening counts, wherever the steps of an environment read it."""

from __future__ import annotations

import logging
import math
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from marks import slow_after
from numpy.typing import NDArray
from test_kernels import check_same, start_states

import planvec
from planvec import PlanEnv
from planvec.kernels.contents import Contents
from planvec.kernels.own import registered
from planvec.kernels.uses import Uses

settings = types.ModuleType("settings_of_the_program")
vars(settings).update(damping=0.25, __file__="settings.py")
GAIN = 2.0
TABLE, OFFSET = [0.5, 1.0, 1.5], [0.0]


class Motor:
    """An object of the program that steps use."""

    __slots__ = ("limits", "power")

    def __init__(self) -> None:
        self.power, self.limits = 3.0, {"low": (-9.0,), "high": [9.0]}

    def torque(self, action: float) -> float:
        return self.power * action


MOTOR = Motor()


def bias() -> float:
    return 0.125


def with_default(action: float, offset: list[float] = OFFSET) -> float:
    return action + offset[0]


def make_drag(drag: float) -> tuple[Callable[[float], float], Callable[[float], None]]:
    def apply(speed: float) -> float:
        return drag * speed

    def change(to: float) -> None:
        nonlocal drag
        drag = to

    return apply, change


apply_drag, change_drag = make_drag(0.5)


class Base(gymnasium.Env[NDArray[np.float64], int]):
    """Has a constant and a method that its subclass inherits."""

    shift = 0.0625

    def sign(self) -> float:
        return 1.0


class Cart(Base):
    """A cart whose steps read constants from everywhere."""

    __slots__ = ("mass",)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)
    friction = (0.25, 0.5)

    def __init__(self) -> None:
        self.options = {"wind": [0.5]}
        self.parts = [Motor()]
        self.table = np.array([1.0, 2.0])
        self.mass = 2.0

    @staticmethod
    def clip(speed: float) -> float:
        return max(-50.0, min(50.0, speed))

    @property
    def scale(self) -> float:
        return 0.5

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        self.speed = float(self.np_random.uniform(-1, 1))
        return np.array([self.speed]), {}

    def step(self, action: int) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        push = GAIN * with_default(float(action) - 1.0) + bias() + TABLE[1] + self.shift * self.sign()
        push += MOTOR.torque(0.5) + self.parts[0].torque(0.25) + MOTOR.limits["high"][0]
        push += self.options["wind"][0] - self.friction[0] + self.table[1] + settings.damping
        push -= apply_drag(1.0)
        self.speed = self.clip(0.5 * self.speed + self.scale * push / self.mass)
        return np.array([self.speed]), -abs(self.speed), abs(self.speed) > 40.0, False, {}


def kernel_step(state: Any, action: Any) -> Any:
    push = 2.0 * (action - 1.0) + 0.125 + 1.0 + 0.0625 + 1.5 + 0.75 + 9.0 + 0.5 - 0.25 + 2.0 + 0.25 - 0.5
    speed = max(-50.0, min(50.0, 0.5 * state[0] + 0.5 * push / 2.0))
    return (speed,), -abs(speed), abs(speed) > 40.0


planvec.kernel(Cart, state="speed")(kernel_step)

Change = Callable[[Any, pytest.MonkeyPatch], Any]
CHANGES: dict[str, Change] = {
    "a constant of a module": lambda env, patch: patch.setitem(globals(), "GAIN", 4.0),
    "a function of a module": lambda env, patch: patch.setitem(globals(), "bias", lambda: 7.0),
    "the code of a function, as IPython's autoreload does": lambda env, patch: patch.setattr(
        bias, "__code__", (lambda: 7.0).__code__
    ),
    "a list of a module": lambda env, patch: TABLE.__setitem__(1, 3.0),
    "a constant of another module": lambda env, patch: patch.setattr(settings, "damping", 1.0),
    "a default argument": lambda env, patch: patch.setattr(with_default, "__defaults__", ([1.0],)),
    "the content of a default argument": lambda env, patch: OFFSET.__setitem__(0, 1.0),
    "a variable of an enclosing function": lambda env, patch: change_drag(1.0),
    "an object of a module": lambda env, patch: patch.setattr(MOTOR, "power", 5.0),
    "a list in a dictionary in an object": lambda env, patch: MOTOR.limits["high"].__setitem__(0, 1.0),
    "a method of a class of the program": lambda env, patch: patch.setattr(
        Motor, "torque", lambda self, action: 0.0
    ),
    "a constant of the class": lambda env, patch: patch.setattr(Cart, "friction", (2.0,)),
    "a constant of a base": lambda env, patch: patch.setattr(Base, "shift", 2.0),
    "a constant of a base, in the class": lambda env, patch: patch.setattr(Cart, "shift", 2.0, raising=False),
    "a constant of the class, in the object": lambda env, patch: patch.setattr(env, "friction", (2.0,)),
    "a method of a base, in the object": lambda env, patch: patch.setattr(env, "sign", lambda: -1.0),
    "a static method": lambda env, patch: patch.setattr(Cart, "clip", staticmethod(lambda speed: 0.5)),
    "a property": lambda env, patch: patch.setattr(Cart, "scale", property(lambda self: 0.25)),
    "a list in a dictionary of the object": lambda env, patch: env.options["wind"].__setitem__(0, 3.0),
    "an object in a list of the object": lambda env, patch: patch.setattr(env.parts[0], "power", 5.0),
    "an array of the object": lambda env, patch: env.table.__setitem__(1, 5.0),
    "an attribute in __slots__": lambda env, patch: patch.setattr(env, "mass", 4.0),
}


@pytest.mark.parametrize("name", slow_after(8, CHANGES))
def test_what_is_changed_after_opening_counts(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, compiled = PlanEnv(Cart, compiled=False), PlanEnv(Cart, compiled=True)
    states, actions = start_states(plain), np.arange(200) % 3
    before = compiled.step_batch(actions, states)
    check_same(plain.step_batch(actions, states), before)
    try:
        for env in (plain, compiled):
            CHANGES[name](env.env.unwrapped, monkeypatch)
        with caplog.at_level(logging.WARNING, "planvec"):
            after = compiled.step_batch(actions, states)
        check_same(plain.step_batch(actions, states), after)
        assert before.new_states.tobytes() != after.new_states.tobytes()  # type: ignore[union-attr]
        assert "its kernel is not used" in caplog.text
    finally:
        TABLE[1], OFFSET[0], MOTOR.limits["high"][0] = 1.0, 0.0, 9.0
        change_drag(0.5)


@pytest.mark.slow
def test_a_constant_that_becomes_minus_zero_counts() -> None:
    """It has other bits, though it is equal to zero; so have the results of a kernel."""

    class Signed(Cart):
        zero = 0.0

        def step(self, action: int) -> Any:
            return np.array([self.speed]), math.copysign(1.0, self.zero), False, False, {}

    planvec.kernel(Signed, state="speed", constants="zero")(
        lambda state, action, constants: (state, math.copysign(1.0, constants[0]), False)
    )
    try:
        compiled = PlanEnv(Signed, compiled=True)
        states, actions = start_states(compiled), np.zeros(200, int)
        assert (compiled.step_batch(actions, states).rewards == 1.0).all()
        Signed.zero = -0.0
        assert (compiled.step_batch(actions, states).rewards == -1.0).all()
        assert compiled.stepper.kernel.is_used
    finally:
        registered._kernels.pop(Signed)


def test_nothing_is_compared_again_while_nothing_has_changed() -> None:
    """Neither by steps, nor by equal values."""
    compiled = PlanEnv(Cart, compiled=True)
    kernel = compiled.stepper.kernel._kernel
    states, actions = start_states(compiled), np.zeros(200, int)
    env: Any = compiled.env.unwrapped
    for _ in range(3):
        compiled.step_batch(actions, states)
        env.mass, env.table = float("2.0"), np.array([1.0, 2.0])
    env.step(0)
    compiled.step_batch(actions, states)
    assert compiled.stepper.kernel._kernel is kernel


def test_names_that_code_does_not_read_do_not_count() -> None:
    """Such as a variable of the program with the name of an attribute."""
    compiled = PlanEnv(Cart, compiled=True)
    kernel = compiled.stepper.kernel._kernel
    globals()["speed"] = 3.0
    try:
        compiled.step_batch(np.zeros(2, int), np.repeat(compiled.get_state(), 2))
        assert compiled.stepper.kernel._kernel is kernel
    finally:
        del globals()["speed"]


def test_a_digest_of_what_code_uses_tells_changes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = Uses(Cart).digest()
    assert Uses(Cart).digest() == digest
    monkeypatch.setitem(globals(), "GAIN", 4.0)
    assert Uses(Cart).digest() != digest


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2.0]], lambda value: value[1].append(0)),
        ({"a": {1, 2}}, lambda value: value["a"].add(3)),
        ([2], lambda value: value.__setitem__(0, 2.0)),
        ([0.0], lambda value: value.__setitem__(0, -0.0)),
        (np.zeros(3), lambda value: value.__setitem__(1, np.nan)),
        ([Motor()], lambda value: setattr(value[0], "power", 1.0)),
        ([Motor()], lambda value: value.__setitem__(0, Motor())),
    ],
)
def test_a_change_in_place_is_found(value: Any, change: Callable[[Any], Any]) -> None:
    contents = Contents(value, lambda kind: kind is Motor)
    assert contents.are_known
    assert not contents.have_changed()
    change(value)
    assert contents.have_changed()


def test_objects_that_contain_themselves_and_large_containers_can_be_taken() -> None:
    circle: list[Any] = [1.0, float("nan")]
    circle.append(circle)
    contents = Contents(circle, lambda kind: False)
    assert not contents.have_changed()
    circle[0] = 2.0
    assert contents.have_changed()
    assert not Contents(list(range(10**6)), lambda kind: False).are_known
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert not Contents(deep, lambda kind: False).are_known
    while deep:  # Python cannot free a list this deep at once
        deep = deep.pop()
