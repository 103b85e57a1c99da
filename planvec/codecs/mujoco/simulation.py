"""Saves one simulation (`MjData`) of an environment of any class, and what was changed in its model.

`mjSTATE_INTEGRATION` holds what the next `mj_step` depends on. Environments may also read arrays that MuJoCo
derives from it, before they simulate. Computing these again gives other numbers, if the environment calls
`mj_step`: it leaves them as they were in the last substep. After `mj_step1`, as dm_control steps, they must
be computed again, since contacts and constraints are read by `mj_step2`. A `Way` says what is done.
"""

from __future__ import annotations

import ctypes
import pickle
import zlib
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.differences import Differences, is_equal_memory
from planvec.codecs.unpickling import unpickle
from planvec.errors import UnsupportedEnvError

# -- Saves the contacts of a simulation, for environments that read them before they simulate ----------------

# scratch memory of the solver, and where the forces are, which are not saved
_NOT_SAVED = ("H", "efc_address")


class Contacts:
    """Saves and restores the contacts of one simulation."""

    # MuJoCo has no function to set them, so they are written into its memory. Of each contact, only the
    # fields are saved: the bytes between them are whatever the memory held before.

    def __init__(self, data: Any) -> None:
        self._data = data
        num_contacts, data.ncon = data.ncon, 1
        contact = data.contact
        arrays = {name: getattr(contact, name) for name in dir(contact) if not name.startswith("_")}
        fields = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
        data.ncon = num_contacts
        first = fields["dist"]
        self._size = first.strides[0]
        start = first.ctypes.data
        is_field = np.zeros(self._size, bool)
        for name, field in fields.items():
            if name not in _NOT_SAVED:
                offset = field.ctypes.data - start
                is_field[offset : offset + field[0].nbytes] = True
        self._places = np.flatnonzero(is_field)

    def get(self) -> bytes:
        """Return the fields of all contacts."""
        return self._memory()[:, self._places].tobytes() if self._data.ncon else b""

    def set(self, contacts: bytes) -> None:
        """Restore what `get` returned."""
        self._data.ncon = len(contacts) // len(self._places)
        if contacts:
            rows = np.frombuffer(contacts, np.uint8).reshape(-1, len(self._places))
            self._memory()[:, self._places] = rows
            # The forces that it refers to are not there: mj_contactForce would read outside of the memory.
            self._data.contact.efc_address[:] = -1

    def _memory(self) -> NDArray[np.uint8]:
        """Return the memory of the contacts, one per row."""
        number = self._data.ncon
        address = self._data.contact.dist.ctypes.data  # the first field of the first contact
        memory = (ctypes.c_uint8 * (self._size * number)).from_address(address)
        return np.ctypeslib.as_array(memory).reshape(number, self._size)


# -- Saves what an environment changes in its `MjModel`: the gravity, a friction, a height field.
#
# Nearly all environments leave their model alone. So only the bytes that differ from the model at the start
# are saved. Comparing them costs about 10 us for a model of 100 KB.

# prefixes of arrays that must not change: shapes, which may take many megabytes
_SHAPES = ("mesh_", "bvh_", "oct_")
# prefixes of arrays that have no influence on the physics: pictures and names
_IGNORED = ("tex_", "skin_", "name", "paths", "text_", "plugin_")
# Number of bytes between two arrays that are compared as one block. MuJoCo aligns arrays to 64 bytes.
_LARGEST_GAP = 64


class ModelFields:
    """Saves and restores the fields of one model, in so far as they have changed."""

    def __init__(self, model: Any) -> None:
        self._model = model  # kept alive, since `_blocks` are its memory
        self._options = model.opt
        self._names = [
            name for name in dir(model.opt) if isinstance(getattr(model.opt, name), (bool, int, float))
        ]
        self._read_options = attrgetter(*self._names)
        self._first_options = self._read_options(model.opt)
        self._shapes = [_memory(*place) for place in sorted(set(_arrays_of(model, _SHAPES)))]
        self._first_checksum = self._checksum()
        self._blocks = [_memory(start, size) for start, size in _blocks_of(model)]
        self._first = [block.copy() for block in self._blocks]
        self._places = [
            (int(block.ctypes.data), int(first.ctypes.data), block.size)
            for block, first in zip(self._blocks, self._first, strict=True)
        ]
        self._differences = [Differences(first.tobytes()) for first in self._first]

    def check_shapes(self) -> None:
        """Check that no mesh has changed. It takes about 1 ms for each MB."""
        if self._checksum() != self._first_checksum:
            raise UnsupportedEnvError(
                "it changes the meshes of its MjModel, which planvec does not save. Make the model anew in a "
                'factory, or pass codec="replay", which is exact if the environment restarts from its seed'
            )

    def _checksum(self) -> int:
        checksum = 0
        for shape in self._shapes:
            checksum = zlib.crc32(shape.data, checksum)
        return checksum

    def get(self) -> bytes:
        """Return what differs from the model at the start; b"" if nothing does."""
        options = self._read_options(self._options)
        changes = [
            (number, self._differences[number].get(self._blocks[number].tobytes()))
            for number, place in enumerate(self._places)
            if not is_equal_memory(*place)
        ]
        if not changes and options == self._first_options:
            return b""
        return pickle.dumps((options, changes), protocol=5)

    def set(self, changes: bytes) -> None:
        """Change the model at the start by what `get` returned."""
        for block, first in zip(self._blocks, self._first, strict=True):
            block[:] = first
        options = self._first_options
        if changes:
            options, blocks = unpickle(changes)
            for number, change in blocks:
                content = self._differences[number].restore(change)
                self._blocks[number][:] = np.frombuffer(content, np.uint8)
        if options != self._read_options(self._options):
            for name, value in zip(self._names, options, strict=True):
                setattr(self._options, name, value)


def _blocks_of(model: Any) -> list[tuple[int, int]]:
    """Return the address and the size of each block of memory that is watched."""
    blocks: list[tuple[int, int]] = []
    # One after the other: which of the two lies first in memory differs between processes.
    for owner in (model.opt, model):
        last_start, last_end = 0, 0
        for start, size in sorted(set(_arrays_of(owner))):
            if last_end and 0 <= start - last_end <= _LARGEST_GAP:
                blocks.pop()
            else:
                last_start = start
            last_end = start + size
            blocks.append((last_start, last_end - last_start))
    return blocks


def _arrays_of(owner: Any, prefixes: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """Return the address and the size of each array of a model, or of its options."""
    arrays = []
    for name in dir(owner):
        if name.startswith(prefixes) if prefixes else not name.startswith(("_", *_SHAPES, *_IGNORED)):
            array = getattr(owner, name, None)
            if isinstance(array, np.ndarray) and array.size:
                arrays.append((int(array.ctypes.data), int(array.nbytes)))
    return arrays


def _memory(start: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))


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
        derived = _ACCELERATIONS if way.recomputes and not way.saves_all else _DERIVED
        saved = [array for array in derived if way.saves_all or _is_read(array, names)]
        for name in dict.fromkeys((*BEYOND_STATE, *saved, *(POSES if is_rendered else ()))):
            for array in _arrays(data, [name]):
                self._views.append(array.reshape(-1))
                self.layout.append((name, array.size))
        self._size = sum(size for _, size in self.layout)
        reads_contacts = not (way.recomputes or {"contact", "ncon"}.isdisjoint(names))
        self._contacts = Contacts(data)
        self._first_contacts = self._contacts.get()
        self._saves_contacts = way.saves_all or reads_contacts

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
        # a mask of the numbers that are not zero, and these numbers: forces on bodies mostly are
        mask = numbers.view(np.uint64) != 0  # -0.0 is kept
        return np.packbits(mask).tobytes() + numbers[mask].tobytes(), contacts, self._fields.get()

    def set(self, saved: SavedSimulation) -> None:
        """Restore a value."""
        data, contacts, model = saved
        self._fields.set(model)
        mask_size = (self._size + 7) // 8
        mask = np.unpackbits(np.frombuffer(data, np.uint8, mask_size), count=self._size).view(bool)
        numbers = np.zeros(self._size)
        numbers[mask] = np.frombuffer(data, np.float64, offset=mask_size)
        mujoco.mj_setState(self._model, self._data, numbers[: self._num_state], INTEGRATION)
        if self._recomputes:
            mujoco.mj_step1(self._model, self._data)
        start = self._num_state
        for view in self._views:
            view[:] = numbers[start : start + view.size]
            start += view.size
        if self._saves_contacts:
            self._contacts.set(contacts)


def _arrays(data: Any, names: Iterable[str]) -> list[NDArray[Any]]:
    """Return the arrays of a simulation that have elements. Versions of MuJoCo differ in their arrays."""
    arrays = [getattr(data, name, None) for name in names]
    return [array for array in arrays if isinstance(array, np.ndarray) and array.size]


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
