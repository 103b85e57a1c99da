"""Watches what an environment may change besides its attributes: there it cannot be saved.

Between two calls of `begin` and `check`, the environment is stepped. Then these must be as before:

- the global generators of `random`, `numpy.random` and `torch`;
- the variables of the modules and classes that define the environment;
- variables in closures, default arguments and attributes of their functions;
- the number of generators that were spawned from `np_random`.

Spaces from which the environment draws are reported, since their generators can be saved.
"""

from __future__ import annotations

import pickle
import random
import types
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.base import layers_of
from planvec.codecs.generic.attributes import ADVICE, spaces_in
from planvec.codecs.generic.structure import digests_of, torch_generator_state
from planvec.codecs.generic.survey import functions_of, variables_beside
from planvec.errors import UnsupportedEnvError


class Beside:
    """Compares the state beside an environment before and after some steps."""

    def __init__(
        self,
        env: Any,
        classes: Sequence[type],
        functions: dict[str, types.FunctionType],
        spaces: dict[str, gymnasium.Space[Any]],
        caches: Collection[str] = (),
    ) -> None:
        self._env = env.unwrapped
        self._layers = {id(layer): "env" for layer in layers_of(env)}
        self._classes = classes
        self._functions = {**functions_of(classes), **functions}
        self._spaces = spaces
        self._caches = caches

    def begin(self) -> None:
        """Remember the present state. To be called right after a reset."""
        self._digests = self._variables()
        self._generators = global_generators()
        self._num_spawned = self.num_spawned()
        self._drawn = {path: _generator_states(space) for path, space in self._spaces.items()}

    def check(self) -> list[str]:
        """Compare the present state with that of `begin`."""
        # Returns paths of the spaces from which the environment has drawn.
        name = type(self._env).__name__
        for module, state in global_generators().items():
            if state != self._generators[module]:
                raise UnsupportedEnvError(
                    f"{name}: its steps draw from the global generator of `{module}`, which is no part of "
                    f"the environment. Draw from self.np_random instead. {ADVICE}"
                )
        if self.num_spawned() != self._num_spawned:
            raise UnsupportedEnvError(
                f"{name}: its steps spawn generators from np_random, and the number of spawned ones is not "
                f"saved. Spawn them in reset, or seed them with integers that np_random draws. {ADVICE}"
            )
        digests = self._variables()
        for path in {**self._digests, **digests}:
            if digests.get(path) != self._digests.get(path) and path not in self._caches:
                raise UnsupportedEnvError(
                    f"{name}: its steps change {path}, which is no attribute of the environment. Keep it in "
                    f"an attribute of self. If it is a cache without influence on results, pass "
                    f'codec=planvec.Copied(caches=["{path}"])'
                )
        return [path for path, space in self._spaces.items() if _generator_states(space) != self._drawn[path]]

    def num_spawned(self) -> int:
        """Return how many generators were spawned from `np_random`."""
        sequence = getattr(getattr(self._env._np_random, "bit_generator", None), "seed_seq", None)
        return int(getattr(sequence, "n_children_spawned", 0))

    def _variables(self) -> dict[str, bytes]:
        """Return the digests of all variables that are watched."""
        variables = variables_beside(self._classes)
        for path, function in self._functions.items():
            for number, cell in enumerate(function.__closure__ or ()):
                variables[f"the variable {function.__code__.co_freevars[number]} of {path}"] = cell
            for number, default in enumerate(function.__defaults__ or ()):
                variables[f"default argument {number} of {path}"] = default
            for name, default in (function.__kwdefaults__ or {}).items():
                variables[f"default argument {name} of {path}"] = default
            for name, value in vars(function).items():
                variables[f"{path}.{name}"] = value
        variables |= self._spaces
        digests: dict[str, bytes] = {}
        for path, value in variables.items():  # one by one: what they share does not matter
            digests[path] = digests_of({path: value}, self._layers)[path]
        return digests


def global_generators() -> dict[str, Any]:
    """Return the states of the global generators by their modules, to be compared with later ones."""
    return {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": torch_generator_state(),
    }


def _generator_states(space: gymnasium.Space[Any]) -> list[Any]:
    """Return the states of the generators of a space and of the spaces in it; None for one without."""
    generators = [inner._np_random for inner in spaces_in(space)]
    return [None if generator is None else generator.bit_generator.state for generator in generators]
