"""The form of an Atari state: ale-py's own, less the text of a generator."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ale_py

from planvec.errors import UnsupportedEnvError

__all__ = [
    "Frame",
    "Mark",
    "Saved",
    "Start",
    "cartridge",
    "drawing_objects",
    "is_start",
    "is_whole",
    "looping",
    "serialize",
    "with_short_text",
]

Frame = tuple[int, float]
"""The action of one frame, and how far the paddle is turned."""

_INT = struct.Struct("<i")
# The head of a serialized state: six numbers (the fourth counts the frames of the episode), the length of
# the rest, the checksum of the cartridge, "System", its cycles, and the length of a generator's text.
_EPISODE_FRAMES, _LENGTH, _CARTRIDGE, _SYSTEM = slice(12, 16), 24, slice(32, 64), slice(68, 74)
_CYCLES, _TEXT_LENGTH, _TEXT = slice(74, 78), 78, 82
_MEMORY = 0x80
"""Address of the console's memory."""
_JUMP, _LOAD, _STORE = 0x4C, 0xA9, 0x85
"""Instructions of the 6502: JMP, LDA #, STA."""
_VSYNC, _WSYNC, _CTRLPF, _HMOVE, _HMCLR = 0x00, 0x02, 0x0A, 0x2A, 0x2B
"""Registers of the graphics chip."""
_CONTROL = 17
"""Place of CTRLPF among its saved numbers."""
_ANY = b"\xff"
_DRAW = bytes(
    (
        *(_STORE, _WSYNC, _STORE, _HMCLR, _STORE, _HMOVE, _LOAD, _ANY[0], _STORE, _CTRLPF),
        *(_LOAD, 2, _STORE, _VSYNC, _STORE, _WSYNC, _STORE, _WSYNC, _LOAD, 0, _STORE, _VSYNC),
    )
)
"""Wait for a line to begin, move all objects by nothing, write the control (`_ANY`), end the frame."""
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
    """The state with its processor caught in a loop of one instruction."""
    return _running(emulator, bytes((_JUMP, _MEMORY, 0)))


def drawing_objects(emulator: bytes) -> bytes:
    """The state with its processor about to tell the graphics chip where its objects are, in a short frame.

    Where the five objects are drawn follows from saved numbers, but ale-py works it out when they change and
    does not save what it found. Moving all by nothing (HMCLR, HMOVE) makes it work that out, and so does
    writing the control of the playfield once more.
    """
    control = emulator[emulator.index(b"TIA") + len(b"TIA") + _CONTROL * _INT.size]
    return _running(emulator, _DRAW.replace(_ANY, bytes((control,))))


def _running(emulator: bytes, program: bytes) -> bytes:
    """The state with a program in the console's memory, which its processor is to run."""
    name = emulator.index(b"M6502")
    (length,) = _INT.unpack_from(emulator, name - _INT.size)
    counter = name + length + 5 * _INT.size  # after A, X, Y, SP and the instruction
    cells = emulator.index(b"M6532") + len(b"M6532") + _INT.size
    data = bytearray(emulator)
    data[counter : counter + _INT.size] = _INT.pack(_MEMORY)
    data[cells : cells + len(program) * _INT.size : _INT.size] = program  # one byte in every number
    return bytes(data)


def with_short_text(emulator: bytes) -> bytes:
    """The state with a text for the generator that is quickly written again, in every state saved later."""
    text = b"1 " * 624 + b"624"
    (length,) = _INT.unpack_from(emulator, _LENGTH)
    head = emulator[:_LENGTH] + _INT.pack(length + len(text)) + emulator[_LENGTH + 4 : _TEXT_LENGTH]
    return head + _INT.pack(len(text)) + text + emulator[_TEXT:]
