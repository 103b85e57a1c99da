"""Uses the kernel of an environment as soon as that saves time.

Importing numba and loading a kernel takes about a second, and compiling it for the first time a few seconds.
A program that steps 20 rows would only wait for it. The results are the same with and without it.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import gymnasium

from planvec.codecs import StateCodec
from planvec.errors import UnsupportedEnvError
from planvec.kernels import costs_of, has_kernel, has_own_kernel, open_kernel
from planvec.rows import Columns, EnvDescription, Outputs, RolloutBatch, StepBatch
from planvec.stepping.kernel_proof import prove
from planvec.stepping.row_loop import RowLoop

if TYPE_CHECKING:
    from planvec.kernels import BatchKernel

_log = logging.getLogger("planvec")

_SECONDS_FOR_NUMBA = 0.75  # time to import numba, which planners import anyway
_SECONDS_TO_ANNOUNCE = 1.0


class LazyKernel:
    """Loads, proves and uses the kernel of an environment."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        codec: StateCodec,
        rows: RowLoop,
        compiled: bool | None,
        num_threads: int,
        info_keys: tuple[str, ...] | None,
    ) -> None:
        self._env = env
        self._codec = codec
        self._rows = rows
        self._num_threads = num_threads
        self._info_keys = info_keys
        self._kernel: BatchKernel | None = None
        self._seconds = 0.0
        # A window shows the steps of the environment itself.
        is_shown = env.render_mode == "human"
        # planvec's kernels know the fields of planvec's codecs alone.
        has_fields = codec.is_built_in or has_own_kernel(type(env.unwrapped))
        # whether there is a kernel for the environment and its states
        self.exists = codec.steps_base and has_fields and has_kernel(type(env.unwrapped)) and not is_shown
        self._is_pending = compiled is not False and self.exists
        self.is_required = compiled is True  # whether the user has asked for it
        # whether there is a kernel and whether it is used, in words
        self.status = "not loaded" if self._is_pending else self._reason(compiled)

    def _reason(self, compiled: bool | None) -> str:
        """Return why no kernel is used."""
        if compiled is False:
            return "not used: compiled=False"
        if has_own_kernel(type(self._env.unwrapped)) and not self._codec.steps_base:
            return "not used: a wrapper takes part in steps, or the environment is saved in another way"
        if has_kernel(type(self._env.unwrapped)):
            return "not used: a wrapper takes part in steps, another codec saves states, or a window is open"
        return f"none for {type(self._env.unwrapped).__name__}"

    @property
    def is_used(self) -> bool:
        """Whether the kernel is loaded and proved."""
        return self._kernel is not None

    def open(self, about: EnvDescription) -> None:
        """Load the kernel now if the user has asked for it."""
        self._about = about
        if not self.is_required:
            return
        self.load()
        if self._kernel is None:
            raise UnsupportedEnvError(
                f"compiled: expected None or False for {self._env}, whose kernel cannot be used, got True "
                f"({self.status})"
            )

    def load(self) -> None:
        """Compile the kernel, or load it from the cache, and prove it, if that was not done before."""
        # `status` tells the result.
        if not self._is_pending:
            return
        self._is_pending = False
        started = time.perf_counter()
        try:
            codec = self._codec
            kernel = open_kernel(self._env, codec.format.dtype, codec.time_limit, self._num_threads)
            difference, num_stepped = prove(kernel, self._rows, codec, self._about, self._info_keys)
        except KeyboardInterrupt:
            self._is_pending = True  # the next batch tries again
            raise
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
            _log.debug("%s: its kernel cannot be used", self._env, exc_info=True)
        seconds = time.perf_counter() - started
        if difference:
            self.status = f"not used: {difference}"
            _log.warning("%s: its kernel is %s", self._env, self.status)
            return
        kernel.settle()
        self._kernel = kernel
        self.status = f"used: compared in {num_stepped:,} steps and in rollouts, with the same bits"
        if seconds > _SECONDS_TO_ANNOUNCE:
            _log.info("%s: its kernel was compiled or loaded in %.1f s", self._env, seconds)

    def step(self, batch: StepBatch, out: Outputs) -> Columns | None:
        """Step rows with the kernel. Returns their infos; None if the environment has to step them."""
        kernel = self._ready(batch)
        try:
            return None if kernel is None else kernel.step(batch, out, self._info_keys)
        except Exception:  # of the function of a user; the environment tells what is wrong
            _log.debug("%s steps itself", self._env, exc_info=True)
            return None

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows with the kernel. Returns False if the environment has to step them."""
        kernel = self._ready(batch)
        try:
            return kernel is not None and kernel.rollout(batch, out)
        except Exception:  # as above
            _log.debug("%s steps itself", self._env, exc_info=True)
            return False

    def add_seconds(self, seconds: float) -> None:
        """Count the time that the environment has stepped."""
        self._seconds += seconds

    def _ready(self, batch: StepBatch | RolloutBatch) -> BatchKernel | None:
        """Return the kernel for a batch, as `ready`."""
        if self._kernel is None and not self._is_pending:
            return None
        steps = batch.steps if self._is_pending else 0
        return self.ready(steps * batch.num_rows if isinstance(steps, int) else int(steps.sum()))

    def ready(self, num_steps: int) -> BatchKernel | None:
        """Return the kernel, which is loaded if so many steps make it time; None if there is none yet."""
        if self._kernel is not None and self._kernel.has_changed():
            self._kernel, self._is_pending = None, True
            self.load()
        if self._is_pending:
            limit, seconds_per_step = costs_of(type(self._env.unwrapped))
            if "numba" not in sys.modules:
                limit += _SECONDS_FOR_NUMBA
            if self._seconds + num_steps * seconds_per_step > limit:
                self.load()
        return self._kernel
