"""Sends the factory of a worker, with the ids of environments that this process has registered."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from gymnasium.envs.registration import EnvSpec, registry

from planvec.backends.messages.main_classes import load_from_parent
from planvec.backends.messages.pickling import explain, pickle_for_worker
from planvec.errors import UnsupportedEnvError, WorkerStartError

_CURES = (
    "make it where it is used, in __init__ of the environment or in the factory, or move what uses it to a "
    "module that the script imports"
)


def pickle_factory(factory: Callable[[], Any], other_cure: str = "") -> bytes:
    """Pickle a factory for workers."""
    specs = dict(registry)
    try:
        # In one pickle, since the functions of a script share its variables.
        return pickle_for_worker((factory, specs))
    except Exception:
        try:
            pickle_for_worker(factory)
        except Exception as error:
            raise WorkerStartError(
                f"factory: {explain(factory, error)}: {_CURES}{other_cure}; nothing was started"
            ) from error
    return pickle_for_worker((factory, {env_id: _sendable(spec) for env_id, spec in specs.items()}))


def _sendable(spec: EnvSpec) -> EnvSpec:
    """Return a spec, or if it cannot be pickled one that raises the reason when it is made."""
    try:
        pickle_for_worker(spec)
    except Exception as error:
        text = f"{spec.id}: {explain(spec, error)}: {_CURES}"
        refuse = partial(_refuse, text)
        return dataclasses.replace(spec, entry_point=refuse, vector_entry_point=refuse, kwargs={})
    return spec


def _refuse(text: str, **_: Any) -> NoReturn:
    raise UnsupportedEnvError(text)


def load_factory(data: bytes) -> Callable[[], Any]:
    """Return a function that makes the object of a factory that `pickle_factory` pickled."""
    factory, specs = load_from_parent(data)
    return partial(_make, factory, specs)


def _make(factory: Callable[[], Any], specs: dict[str, EnvSpec]) -> Any:
    """Call a factory, with all ids as in the parent."""
    registry.update(specs)
    # A package registers its ids once more when the factory imports it.
    warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry", UserWarning)
    made = error = None
    try:
        made = factory()
    except Exception as raised:
        error = raised
    if any(_differs(registry.get(env_id), spec) for env_id, spec in specs.items()):
        # The script had registered an id of this package again, and the package has now replaced it here.
        close = getattr(made, "close", None)
        if callable(close):
            close()
        registry.update(specs)
        return factory()
    if error is not None:
        raise error
    return made


def _differs(one: EnvSpec | None, other: EnvSpec) -> bool:
    """Return whether an id was registered with other contents."""
    return one is not other and repr(one) != repr(other)
