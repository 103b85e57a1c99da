"""Unpickles states. Those from a file may only refer to what states of the environment consist of.

A pickle can call anything that it names. A state that a worker has sent is trusted, one from a file is not.
So `from_file` limits the names: plain data, NumPy's arrays and generators, data of other known libraries,
planvec's own helpers, and the classes of the packages that define the environment.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
import threading
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from planvec.errors import InvalidBatchError

# module -> names that make plain data, arrays or generators, and run no other code
_PLAIN = {
    "array": ("_array_reconstructor", "array"),
    "builtins": (
        *("bytearray", "complex", "dict", "enumerate", "frozenset", "iter", "object", "range", "reversed"),
        *("set", "slice", "zip"),
    ),
    "collections": ("ChainMap", "Counter", "OrderedDict", "UserDict", "UserList", "defaultdict", "deque"),
    "copyreg": ("_reconstructor",),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "gymnasium.spaces.graph": ("GraphInstance",),
    "itertools": ("chain", "count", "cycle", "islice", "repeat"),
    "numpy": ("dtype", "matrix", "ndarray", "record"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy.ma": ("MaskedArray",),
    "numpy.ma.core": ("MaskedArray", "_mareconstruct"),
    "numpy.random": ("Generator", "MT19937", "PCG64", "RandomState", "SeedSequence"),
    "numpy.random._generator": ("Generator",),
    "numpy.random._mt19937": ("MT19937",),
    "numpy.random._pcg64": ("PCG64",),
    "numpy.random._pickle": ("__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"),
    "numpy.random.bit_generator": ("SeedSequence",),
    "numpy.random.mtrand": ("RandomState",),
    "numpy.rec": ("recarray",),
    "pandas": (
        *("Categorical", "CategoricalDtype", "DataFrame", "DatetimeIndex", "DatetimeTZDtype", "Float64Dtype"),
        *("Index", "Int64Dtype", "Interval", "IntervalDtype", "MultiIndex", "NA", "Period", "PeriodDtype"),
        *("BooleanDtype", "RangeIndex", "Series", "StringDtype", "TimedeltaIndex"),
    ),
    "pandas._libs.arrays": ("__pyx_unpickle_NDArrayBacked",),
    "pandas._libs.internals": ("_unpickle_block",),
    "pandas._libs.interval": ("__pyx_unpickle_IntervalMixin",),
    "pandas._libs.tslibs.nattype": ("_nat_unpickle",),
    "pandas._libs.tslibs.timedeltas": ("_timedelta_unpickle",),
    "pandas._libs.tslibs.timestamps": ("_unpickle_timestamp",),
    "pandas.core.indexes.base": ("Index", "_new_Index"),
    "pandas.core.indexes.datetimes": ("DatetimeIndex", "_new_DatetimeIndex"),
    "pandas.core.indexes.timedeltas": ("TimedeltaIndex", "_new_TimedeltaIndex"),
    "pathlib": ("PosixPath", "PurePosixPath"),
    "PIL.Image": ("Image",),
    "re": ("_compile",),
    "torch": (
        *("Size", "Tensor", "bfloat16", "bool", "complex128", "complex64", "device", "float16", "float32"),
        *("float64", "int16", "int32", "int64", "int8", "uint8"),
    ),
    "torch._utils": ("_rebuild_sparse_tensor",),
    "torch.serialization": ("_get_layout",),
    "types": ("SimpleNamespace",),
    "uuid": ("UUID",),
}
# beginnings of modules of libraries whose classes hold data, and run no other code when they are made
_OF_CLASSES = (
    *("networkx.classes.", "pandas.arrays", "pandas.core.", "pandas._libs.tslibs.offsets", "scipy.sparse._"),
    *("torch.distributions.", "torch.nn.modules.", "torch.nn.parameter", "torch.optim."),
)
_OWN = "planvec.codecs.generic."  # beginning of the modules of planvec's helpers


class _Limits(threading.local):
    """The packages whose classes may be named, in each thread."""

    def __init__(self) -> None:
        self.packages: list[frozenset[str]] = []  # one set for each `from_file` that this thread is in


_limits = _Limits()


@contextlib.contextmanager
def from_file(packages: Collection[str]) -> Iterator[None]:
    """Limit what this thread unpickles meanwhile."""
    _limits.packages.append(frozenset(packages))
    try:
        yield
    finally:
        _limits.packages.pop()


def packages_of(classes: Iterable[type]) -> set[str]:
    """Return the packages, or modules at the top, in which classes are defined."""
    return {cls.__module__.partition(".")[0] for cls in classes} - {"builtins", "numpy", "planvec"}


def check_name(module: str, name: str) -> None:
    """Check that a pickle may name something."""
    if not _limits.packages or name in _PLAIN.get(module, ()):
        return
    is_own = module.startswith(_OWN)
    if is_own or module.startswith(_OF_CLASSES) or module.partition(".")[0] in _limits.packages[-1]:
        value = _defined_in(importlib.import_module(module), name)
        if isinstance(value, type) or (is_own and callable(value)):
            return
    raise InvalidBatchError(
        f"states: expected a file with states of this environment alone, got one that names {module}.{name}"
    )


def _defined_in(module: types.ModuleType, name: str) -> Any:
    """Return what a module itself defines under a dotted name, or None: it may have imported anything."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
        if getattr(value, "__module__", None) != module.__name__:
            return None
    return value


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        check_name(module, name)
        return super().find_class(module, name)


def unpickle(data: bytes, buffers: Iterable[object] = ()) -> Any:
    """Return what a pickle holds."""
    if not _limits.packages:
        return pickle.loads(data, buffers=buffers)
    return _Checked(io.BytesIO(data), buffers=buffers).load()
