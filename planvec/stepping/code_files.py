"""Digests of the files that the code of an environment comes from.

A worker that is replaced imports its modules anew. If a file was edited since the environment was opened, the
new worker would run other code than the remaining ones. Their digests show that.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from planvec.codecs import wrappers_of
from planvec.kernels import is_harmless, uses_of_steps
from planvec.rows import is_installed

# packages whose files are not compared: a program that edits these has other problems
_LIBRARIES = ("planvec", "gymnasium", "numpy")


def code_digests(env: Any) -> dict[str, str]:
    """Return the digest of each file from which this process has imported code of an environment."""
    # These are the modules of the classes of the environment and of its wrappers, and all imported modules
    # that are not installed as a package, since the environment may use them.
    classes = {base for layer in (env.unwrapped, *wrappers_of(env)) for base in type(layer).__mro__}
    own = {cls.__module__ for cls in classes}
    digests = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or name.partition(".")[0] in _LIBRARIES or not path.endswith(".py"):
            continue
        if name in own or not is_installed(path):
            content = _content(path)
            if content is not None:
                digests[path] = hashlib.sha256(content).hexdigest()
    env_class = type(env.unwrapped)
    if is_harmless(env_class.__module__, env_class.__name__):  # it may be stepped in the process of the user
        digests[f"the functions or constants of {env_class.__name__}"] = uses_of_steps(env_class).digest()
    return digests


def _content(path: str) -> bytes | None:
    """Return the bytes of a file; None if it is gone, or lies in an archive."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
