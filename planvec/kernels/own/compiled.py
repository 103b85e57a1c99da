"""Defines `OwnCompiledKernel`, a kernel that a user has declared for numbers and numba has compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import gymnasium
import numpy as np

from planvec.kernels import rollout_loop, step_loop
from planvec.kernels.bound_loop import BoundLoop
from planvec.kernels.compiled import CompiledKernel
from planvec.kernels.digests import code_digest, has_full_digest
from planvec.kernels.kernel_type import CodeType
from planvec.kernels.layout import layout_of
from planvec.kernels.own.adapter import kernel_of
from planvec.kernels.own.declared import OwnKernel
from planvec.kernels.own.watch import Watch

# the loops that numba compiles for each kernel, and caches on disk
_CACHED: tuple[Any, ...] = (
    step_loop.step_rows,
    step_loop.keep_ended,
    step_loop._absorb,
    rollout_loop.roll_rows,
)


class OwnCompiledKernel(CompiledKernel):
    """Steps and rolls out batches with the functions of a user."""

    def __init__(
        self,
        own: OwnKernel,
        env: gymnasium.Env[Any, Any],
        dtype: np.dtype[Any],  # the dtype of one state
        time_limit: int | None,
        num_threads: int,
    ) -> None:
        self._own = own
        self._watch = Watch(own, env.unwrapped)
        layout = layout_of(dtype, own.state, env)
        shapes = [dtype[name].shape for name in own.state]
        kernel = kernel_of(own, layout, shapes, self._watch.constants)
        functions = [own.step] if own.observe is None else [own.step, own.observe]
        # numba's cache on disk knows functions by their digest. If that does not cover all that they use,
        # another program must not get them.
        self._is_cached = has_full_digest(*functions)
        form = (code_digest(*functions), shapes, own.infos is None)
        self._own_digest = repr(form if self._is_cached else (*form, own.token))
        with self._cache():
            super().__init__(kernel, env, dtype, time_limit, num_threads)

    def _find_originals(self) -> None:
        return None  # the watch knows them

    def _digest(self) -> str:
        return self._own_digest

    @contextlib.contextmanager
    def _cache(self, *loops: Any) -> Iterator[None]:
        """Use numba's cache on disk or not, for the loops of batches and for others."""
        if self._is_cached:
            yield
            return
        for loop in (*_CACHED, *loops):
            loop._cache.disable()
        try:
            yield
        finally:
            for loop in (*_CACHED, *loops):
                loop._cache.enable()

    def open_loop(self, loop: Any, code: CodeType, variant: Hashable, *examples: Any) -> BoundLoop:
        with self._cache(loop):
            return super().open_loop(loop, code, variant, *examples)

    def _numbers(self) -> tuple[Any, ...] | None:
        return None if self.has_changed() else super()._numbers()

    def _compile_step(self, dt: Any) -> Callable[..., int]:
        with self._cache():
            return super()._compile_step(dt)

    def _constants(self) -> tuple[Any, ...]:
        return self._watch.constants

    def settle(self) -> None:
        self._watch.settle()

    def has_changed(self) -> bool:
        return self._watch.has_changed()
