"""Saves one simulation (`MjData`) of an environment of any class, and what was changed in its model.

`mjSTATE_INTEGRATION` holds what the next `mj_step` depends on. Environments may also read arrays that MuJoCo
derives from it, before they simulate. Computing these again gives other numbers, if the environment calls
`mj_step`: it leaves them as they were in the last substep. After `mj_step1`, as dm_control steps, they must
be computed again, since contacts and constraints are read by `mj_step2`. A `Way` says what is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.mujoco.contacts import Contacts
from planvec.codecs.mujoco.model_fields import ModelFields
from planvec.errors import UnsupportedEnvError

INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# the arrays that a picture is drawn from
POSES = (
    *("xpos", "xquat", "xmat", "xipos", "xiquat", "ximat", "xanchor", "xaxis", "subtree_com"),
    *("geom_xpos", "geom_xquat", "geom_xmat", "site_xpos", "site_xquat", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos"),
    *("ten_length", "ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
)
# arrays that `mj_step1` does not compute, or only in part
_ACCELERATIONS = (
    *("qacc", "act_dot", "sensordata", "cacc", "cfrc_int", "cfrc_ext", "energy"),
    *("actuator_force", "qfrc_actuator", "qfrc_constraint"),
)
# all arrays that an environment may read before it simulates
_DERIVED = (
    *POSES,
    *_ACCELERATIONS,
    *("cinert", "cvel", "actuator_length", "actuator_velocity", "ten_velocity"),
    *("qfrc_bias", "qfrc_passive", "subtree_linvel", "subtree_angmom"),
)
# the arrays that MuJoCo reads in the next step but leaves out of its state: contacts of soft bodies
BEYOND_STATE = ("flexvert_lambda", "flexvert_conage")
# beginning of an array's name -> the methods of `MjData` through which its rest is read: site().xpos
_ACCESSORS = {
    **{"site": ("site",), "geom": ("geom",), "cam": ("cam", "camera"), "light": ("light",)},
    **{"actuator": ("actuator",), "ten": ("tendon",)},
}


class Way(NamedTuple):
    """Names a way to save and restore a simulation."""

    # whether to save all derived arrays and the contacts, instead of those that the code of the environment
    # names
    saves_all: bool
    recomputes: bool  # whether `mj_step1` is called after the state was set


# `mjSTATE_INTEGRATION` and the derived arrays without zeros; the contacts; `ModelFields.get`
SavedSimulation = tuple[bytes, bytes, bytes]


class Simulation:
    """Saves and restores one simulation."""

    def __init__(self, data: Any, names: Collection[str], way: Way, is_rendered: bool) -> None:
        self._data, self._model = data, data.model
        self._recomputes = way.recomputes
        self._fields = ModelFields(self._model)
        self._num_state = mujoco.mj_stateSize(self._model, INTEGRATION)
        self._state = np.empty(self._num_state)
        mujoco.mj_getState(self._model, data, self._state, INTEGRATION)
        self._first_state = self._state.copy()
        self._first_arrays = [(array, array.copy()) for array in _arrays(data, _DERIVED)]
        self._views: list[NDArray[Any]] = []
        # names and sizes of the parts of a value
        self.layout: list[tuple[str, int]] = [("mjSTATE_INTEGRATION", self._num_state)]
        for name in self._array_names(names, way, is_rendered):
            for array in _arrays(data, [name]):
                self._views.append(array.reshape(-1))
                self.layout.append((name, array.size))
        self._size = sum(size for _, size in self.layout)
        reads_contacts = not (way.recomputes or {"contact", "ncon"}.isdisjoint(names))
        self._contacts = Contacts(data)
        self._first_contacts = self._contacts.get()
        self._saves_contacts = way.saves_all or reads_contacts

    def _array_names(self, names: Collection[str], way: Way, is_rendered: bool) -> list[str]:
        derived: tuple[str, ...] = _DERIVED
        if not way.saves_all:
            candidates = _ACCELERATIONS if way.recomputes else _DERIVED
            derived = tuple(array for array in candidates if _is_read(array, names))
        return list(dict.fromkeys((*BEYOND_STATE, *derived, *(POSES if is_rendered else ()))))

    def before_reset(self) -> None:
        """Restore what the simulation held when the environment was opened."""
        self._fields.check_shapes()
        self._fields.set(b"")
        mujoco.mj_resetData(self._model, self._data)
        mujoco.mj_setState(self._model, self._data, self._first_state, INTEGRATION)
        for array, first in self._first_arrays:
            array[:] = first
        self._contacts.set(self._first_contacts)

    def get(self) -> SavedSimulation:
        """Return the present value."""
        mujoco.mj_getState(self._model, self._data, self._state, INTEGRATION)
        numbers = np.concatenate((self._state, *self._views)) if self._views else self._state
        contacts = self._contacts.get() if self._saves_contacts else b""
        return _without_zeros(numbers), contacts, self._fields.get()

    def set(self, saved: SavedSimulation) -> None:
        """Restore a value."""
        data, contacts, model = saved
        self._fields.set(model)
        numbers = self._with_zeros(data)
        mujoco.mj_setState(self._model, self._data, numbers[: self._num_state], INTEGRATION)
        if self._recomputes:
            mujoco.mj_step1(self._model, self._data)
        start = self._num_state
        for view in self._views:
            view[:] = numbers[start : start + view.size]
            start += view.size
        if self._saves_contacts:
            self._contacts.set(contacts)

    def _with_zeros(self, data: bytes) -> NDArray[np.float64]:
        """Return the numbers of which `_without_zeros` returned `data`."""
        mask_size = (self._size + 7) // 8
        mask = np.unpackbits(np.frombuffer(data, np.uint8, mask_size), count=self._size).view(bool)
        numbers = np.zeros(self._size)
        numbers[mask] = np.frombuffer(data, np.float64, offset=mask_size)
        return numbers


def _arrays(data: Any, names: Iterable[str]) -> list[NDArray[Any]]:
    """Return the arrays of a simulation that have elements. Versions of MuJoCo differ in their arrays."""
    arrays = [getattr(data, name, None) for name in names]
    return [array for array in arrays if isinstance(array, np.ndarray) and array.size]


def _without_zeros(numbers: NDArray[np.float64]) -> bytes:
    """Return a mask of the numbers that are not zero, and these numbers. Forces on bodies mostly are."""
    mask = numbers.view(np.uint64) != 0  # -0.0 is kept
    data: bytes = np.packbits(mask).tobytes() + numbers[mask].tobytes()
    return data


def _is_read(array: str, names: Collection[str]) -> bool:
    """Return whether code that contains some names may read an array."""
    if array in names or (array == "sensordata" and "sensor" in names):
        return True
    kind, _, rest = array.partition("_")
    return rest in names and any(accessor in names for accessor in _ACCESSORS.get(kind, ()))


def model_bytes(model: Any) -> NDArray[np.uint8]:
    """Return the content of a whole model."""
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return content


def check_sleep(env: Any, model: Any) -> None:
    """Check that no body can fall asleep."""
    if model.opt.enableflags & int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)):
        raise UnsupportedEnvError(
            f"{type(env).__name__}: the model lets bodies sleep, and MuJoCo does not save which of them "
            'sleep; leave out <flag sleep="enable"/>'
        )
