"""The form of an Atari state: ale-py's own, less the text of a generator."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ale_py

from planvec.errors import UnsupportedEnvError

__all__ = ["Frame", "Mark", "Saved", "Start", "cartridge", "is_start", "is_whole", "looping", "serialize"]

Frame = tuple[int, float]
"""The action of one frame, and how far the paddle is turned."""

_INT = struct.Struct("<i")
# The head of a serialized state: six numbers (the fourth counts the frames of the episode), the length of
# the rest, the checksum of the cartridge, "System", its cycles, and the length of a generator's text.
_EPISODE_FRAMES, _LENGTH, _CARTRIDGE, _SYSTEM = slice(12, 16), 24, slice(32, 64), slice(68, 74)
_CYCLES, _TEXT_LENGTH, _TEXT = slice(74, 78), 78, 82
_MEMORY, _JUMP = 0x80, 0x4C
"""Address of the console's memory; an instruction of the 6502."""
_CYCLES_OF_A_BREAK = 50_000
"""A frame is broken off after 25,000 instructions, of two cycles at least. Most frames take 19,912 cycles."""


class Mark(NamedTuple):
    """A state on the way.

    Attributes:
        emulator: The emulator, not within a frame.
        place: In the bytes of the frames.
        num_whole: Whole frames acted since.
    """

    emulator: bytes
    place: int
    num_whole: int


class Saved(NamedTuple):
    """One state.

    Attributes:
        emulator: The emulator, in ale-py's own form without the text of its generator.
        earlier: The emulator at an earlier time, not within a frame.
        frames: What was acted from there to here, `Emulator.frame_size` bytes a frame.
        held: What an action that sticks would repeat.
        is_within: Whether the emulator stands within a frame.
        mark: A state on the way that will be the next `earlier`, if there is one.
    """

    emulator: bytes
    earlier: bytes
    frames: bytes
    held: Frame
    is_within: bool
    mark: Mark | None = None


class Start(NamedTuple):
    """What loading and resetting a game gives, always the same.

    Attributes:
        state: Of the emulator.
        is_within: Whether it stands within a frame.
        looks: Name of ale-py's method -> what it gave.
    """

    state: bytes
    is_within: bool
    looks: dict[str, Any]

    def look(self, name: str, buffer: tuple[Any, ...]) -> Any:
        """A copy of what one of them gave, or None after writing it into a buffer, as ale-py does."""
        value = self.looks[name]
        if not buffer:
            return value.copy()
        buffer[0][...] = value.reshape(buffer[0].shape)
        return None


def serialize(ale: ale_py.ALEInterface) -> bytes:
    """The state that an emulator is in, in ale-py's form, less the text of a generator.

    Nothing draws from that generator, and its text is the same for every seed; but it is seven eighths of
    the whole and takes most of the time of a restore. ale-py leaves the generator as it is where the text
    is empty.

    Raises:
        UnsupportedEnvError: ale-py's form is another one.
    """
    data: bytes = ale.cloneState().serialize()
    if data[_SYSTEM] != b"System":
        raise UnsupportedEnvError(
            f"ale-py {ale_py.__version__} saves states in a form that planvec does not know; install "
            'ale-py 0.12, or pass codec="replay"'
        )
    (length,), (text,) = _INT.unpack_from(data, _LENGTH), _INT.unpack_from(data, _TEXT_LENGTH)
    head = data[:_LENGTH] + _INT.pack(length - text) + data[_LENGTH + 4 : _TEXT_LENGTH]
    return head + _INT.pack(0) + data[_TEXT + text :]


def is_whole(emulator: bytes) -> bool:
    """Whether a state is surely not within a frame."""
    return int.from_bytes(emulator[_CYCLES], "little") < _CYCLES_OF_A_BREAK


def cartridge(emulator: bytes) -> bytes:
    """The checksum of the game."""
    return emulator[_CARTRIDGE]


def is_start(emulator: bytes) -> bool:
    """Whether no frame was acted since the reset."""
    return emulator[_EPISODE_FRAMES] == _INT.pack(0)


def looping(emulator: bytes) -> bytes:
    """The state with its processor caught in a loop of one instruction, in the console's memory."""
    data = bytearray(emulator)
    name = data.index(b"M6502")
    (length,) = _INT.unpack_from(data, name - 4)
    _INT.pack_into(data, name + length + 5 * _INT.size, _MEMORY)  # after A, X, Y, SP and the instruction
    cells = data.index(b"M6532") + len(b"M6532") + _INT.size
    for number, byte in enumerate((_JUMP, _MEMORY, 0)):
        _INT.pack_into(data, cells + number * _INT.size, byte)
    return bytes(data)
