"""Converts the exceptions of environments into planvec's errors."""

from __future__ import annotations

import re
import signal
from typing import Any

import numpy as np
from gymnasium import Space

from planvec.codecs import StateCodec
from planvec.errors import EnvError, UnsupportedEnvError
from planvec.rows import mask_sizes

_LOOKS_ILLEGAL = re.compile(
    r"illegal|invalid|unavailable|occupied|forbidden|already|\b(action|move)s?\b|"
    r"not (an? )?(legal|valid|allowed|permitted|possible|available)",
    re.IGNORECASE,
)
_MASK_HINT = (
    ". If an action is not legal there: let reset and step report info['action_mask'], a 1 for each legal "
    "action and a 0 for each other one. Planners and random rollouts then take legal ones only"
)
_ALL_HINT = (
    ". The reset or step before reported info['action_mask'] with ones alone, or reported none, which allows "
    "all actions: report a mask each time"
)


def as_env_error(
    error: BaseException,
    row: int | None = None,
    action: Any = None,
    where: str = "",
    *,
    stepped: tuple[StateCodec, Space[Any]] | None = None,
) -> BaseException:
    """Return the error to raise for an exception that an environment raised."""
    if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
        return error
    if isinstance(error, UnsupportedEnvError):
        return error
    detail = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, EnvError):
        detail, row = error.detail, row if error.row is None else error.row
    elif stepped is not None:
        codec, space = stepped
        if not codec.is_built_in and mask_sizes(space).size and _LOOKS_ILLEGAL.search(detail):
            if codec.current_mask is None:
                detail += _MASK_HINT
            elif codec.current_mask().all():
                detail += _ALL_HINT
    return EnvError(where + detail, row=row, action=without_numpy(action))


def without_numpy(action: Any) -> Any:
    """Return an action as it is shown in messages: a NumPy scalar as a Python number."""
    return action.item() if isinstance(action, np.generic) else action


def text_of(error: BaseException) -> str:
    """Return the message of an exception of the user, whose `__str__` may raise."""
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be read: {type(another).__name__})"


def ignores_interrupts() -> bool:
    """Return whether this process ignores Ctrl-C, as workers do. Then only the environment can raise it."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
