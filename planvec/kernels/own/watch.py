"""Tells whether an environment was changed since its kernel was compared with it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from planvec.codecs import same, slot_names
from planvec.kernels.own.declared import OwnKernel
from planvec.kernels.uses import Attributes, Uses

# attributes of Gymnasium that may change
_OWN = {"_np_random", "_np_random_seed", "spec", "metadata", "render_mode"}


class Watch:
    """Remembers the methods, the constants and the other attributes of an environment, and what these use."""

    def __init__(self, own: OwnKernel, env: Any) -> None:
        self._own, self._env, self._class = own, env, type(env)
        # what the functions of the kernel take
        self.constants: tuple[Any, ...] = copy.deepcopy(own.read_constants(env))
        for value in self.constants:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # a function that changed it would have a memory
        functions = (own.step, own.observe, own.constants, own.infos)
        self._uses = Uses(type(env), *filter(callable, functions))
        left_out = {*own.state, *own.ignored, *_OWN}
        self._attributes: Mapping[str, Any] = vars(env)
        self._uses.add_names(self._attributes, self._attributes.keys() - left_out)
        self._uses.add_names(Attributes(env), set(slot_names(type(env))) - left_out)

    def settle(self) -> None:
        """Forget what has changed since: steps change it. Called after the comparison."""
        self._uses.settle()

    def has_changed(self) -> bool:
        """Return whether something differs from what it was."""
        env = self._env
        if type(env) is not self._class or vars(env) is not self._attributes or self._uses.have_changed():
            return True
        try:
            constants = self._own.read_constants(env)
        except Exception:  # an attribute was deleted, or holds something else
            return True
        return len(constants) != len(self.constants) or not all(map(_is_same, self.constants, constants))


def _is_same(expected: Any, value: Any) -> bool:
    """Return whether a constant is what it was, of the same type."""
    return value is expected or (type(value) is type(expected) and same(expected, value))
