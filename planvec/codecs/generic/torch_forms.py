"""Pickles PyTorch's tensors by content. Its own pickles name addresses, and separate views of one memory.

    tensor      where it lies in its storage, its gradient, its own attributes
    storage     its bytes, once for all tensors that lie in it
    generator   its state

PyTorch is never imported here: an environment that holds such objects has imported it.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any

from planvec.errors import UnsupportedEnvError


def reduce_torch(obj: Any) -> Any:
    """Return the pickled form of a tensor, a storage or a generator."""
    torch = _imported()
    if torch is None:
        return None
    kind = type(obj)
    if kind is torch.UntypedStorage and obj.device.type == "cpu":
        return _new_storage, (_bytes(obj),)
    if kind is torch.Generator and obj.device.type == "cpu":
        return _new_generator, (obj.get_state().numpy().tobytes(),)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        return None
    if obj.device.type != "cpu" or obj.layout is not torch.strided or obj.is_quantized or obj._backward_hooks:
        return None
    if not obj.is_leaf:
        raise UnsupportedEnvError(
            "tensor with the record of its calculation, which a copy would lose. Keep tensor.detach(), or "
            "calculate under torch.no_grad()"
        )
    name = str(obj.dtype).removeprefix("torch.")
    place = (obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.is_conj(), obj.is_neg())
    arguments = (kind, obj.untyped_storage(), name, *place, obj.requires_grad)
    return _new_tensor, arguments, (obj.grad, dict(vars(obj))), None, None, _set_state


def torch_memory(value: Any) -> tuple[int, int] | None:
    """Return where the memory of a storage begins and ends; None for another object."""
    torch = _imported()
    if torch is None or type(value) is not torch.UntypedStorage or not value.nbytes():
        return None
    return value.data_ptr(), value.data_ptr() + value.nbytes()


def torch_generator_state() -> bytes:
    """Return the state of PyTorch's global generator; empty if PyTorch is not imported."""
    torch = _imported()
    return b"" if torch is None else torch.get_rng_state().numpy().tobytes()


def _imported() -> Any:
    """Return PyTorch if it is imported, and not just being imported."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def _bytes(storage: Any) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def _new_storage(data: bytes) -> Any:
    torch: Any = importlib.import_module("torch")
    storage = torch.UntypedStorage(len(data))
    ctypes.memmove(storage.data_ptr(), data, len(data))
    return storage


def _new_generator(state: bytes) -> Any:
    torch: Any = importlib.import_module("torch")
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


def _new_tensor(
    kind: Any,
    storage: Any,
    dtype: str,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    is_conj: bool,
    is_neg: bool,
    requires_grad: bool,
) -> Any:
    torch: Any = importlib.import_module("torch")
    tensor = torch.empty(0, dtype=getattr(torch, dtype)).set_(storage, offset, shape, strides)
    tensor = tensor.conj() if is_conj else tensor
    tensor = torch._neg_view(tensor) if is_neg else tensor
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _set_state(tensor: Any, state: tuple[Any, dict[str, Any]]) -> None:
    tensor.grad, attributes = state
    vars(tensor).update(attributes)
