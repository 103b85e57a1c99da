"""The form of an Atari state: ale-py's own, without the text of a generator."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ale_py

from planvec.errors import UnsupportedEnvError

Frame = tuple[int, float]  # the action of one frame, and how far it turns the paddle

_INT = struct.Struct("<i")
# The head of a serialized state: six numbers, the length of the rest, the checksum of the cartridge,
# "System", its cycles, and the length of a generator's text.
_LENGTH, _CARTRIDGE, _SYSTEM = 24, slice(32, 64), slice(68, 74)
_CYCLES, _TEXT_LENGTH, _TEXT = slice(74, 78), 78, 82
_MEMORY = 0x80  # address of the console's memory
_JUMP, _LOAD, _STORE = 0x4C, 0xA9, 0x85  # instructions of the 6502: JMP, LDA #, STA
_VSYNC, _WSYNC, _CTRLPF, _HMOVE, _HMCLR = 0x00, 0x02, 0x0A, 0x2A, 0x2B  # registers of the graphics chip
_CONTROL = 17  # index of CTRLPF among the saved numbers of the chip
_ANY = b"\xff"
# A program: wait for a line, move all objects by nothing, write the control (`_ANY`), end the frame
_DRAW = bytes(
    (
        *(_STORE, _WSYNC, _STORE, _HMCLR, _STORE, _HMOVE, _LOAD, _ANY[0], _STORE, _CTRLPF),
        *(_LOAD, 2, _STORE, _VSYNC, _STORE, _WSYNC, _STORE, _WSYNC, _LOAD, 0, _STORE, _VSYNC),
    )
)
SHORT_TEXT = b"1 " * 624 + b"624"
# A frame is interrupted after 25,000 instructions of at least two cycles. Most frames take 19,912 cycles.
_CYCLES_OF_INTERRUPTED_FRAME = 50_000


class Checkpoint(NamedTuple):
    """Holds an earlier state of the emulator."""

    emulator: bytes  # the emulator, not within a frame
    offset: int  # index of the following frame in the bytes of `Saved.frames`
    num_whole: int  # number of whole frames since


class Saved(NamedTuple):
    """Holds one state."""

    emulator: bytes  # the emulator, in ale-py's own form without the text of its generator
    checkpoint: bytes  # the emulator at an earlier time, not within a frame
    frames: bytes  # the actions since the checkpoint, `Emulator.frame_size` bytes a frame
    held: Frame  # the action that a sticky action would repeat
    is_within: bool  # whether the emulator is within a frame
    num_resets: int  # number of resets since the game was loaded
    since_reset: bool  # whether the checkpoint is the state after the latest reset
    # A later state that will become the checkpoint, if there is one
    next_checkpoint: Checkpoint | None = None


class Start(NamedTuple):
    """Holds the result of loading and resetting a game, which is always the same."""

    state: bytes  # the state of the emulator
    is_within: bool  # whether it lies within a frame
    pictures: dict[str, Any]  # name of ale-py's method -> the picture that it returned

    def picture(self, name: str, buffer: tuple[Any, ...]) -> Any:
        """Return a copy of a picture, or write it into a buffer and return None, as ale-py does."""
        value = self.pictures[name]
        if not buffer:
            return value.copy()
        buffer[0][...] = value.reshape(buffer[0].shape)
        return None


def serialize(ale: ale_py.ALEInterface) -> bytes:
    """Return the state of an emulator in ale-py's form, without the text of its generator."""
    # Only resets draw from that generator; see `generator`. Its text is seven eighths of the data, and takes
    # most of the time of a restore. ale-py does not change the generator if the text is empty.
    data, text = _serialized(ale)
    (length,) = _INT.unpack_from(data, _LENGTH)
    head = data[:_LENGTH] + _INT.pack(length - text) + data[_LENGTH + 4 : _TEXT_LENGTH]
    return head + _INT.pack(0) + data[_TEXT + text :]


def generator_text(ale: ale_py.ALEInterface) -> bytes:
    """Return the text of the generator of an emulator."""
    data, text = _serialized(ale)
    return data[_TEXT : _TEXT + text]


def _serialized(ale: ale_py.ALEInterface) -> tuple[bytes, int]:
    """Return the state of an emulator in ale-py's form, and the length of the text in it."""
    data: bytes = ale.cloneState().serialize()
    if data[_SYSTEM] != b"System":
        raise UnsupportedEnvError(
            f"ale-py: expected the form of states of version 0.12, got that of {ale_py.__version__}. Install "
            'ale-py 0.12, or pass codec="replay"'
        )
    return data, _INT.unpack_from(data, _TEXT_LENGTH)[0]


def is_whole(emulator: bytes) -> bool:
    """Return whether a state is certainly not within a frame."""
    return int.from_bytes(emulator[_CYCLES], "little") < _CYCLES_OF_INTERRUPTED_FRAME


def cartridge(emulator: bytes) -> bytes:
    """Return the checksum of the game."""
    return emulator[_CARTRIDGE]


def looping(emulator: bytes) -> bytes:
    """Return the state with its processor in an endless loop of one instruction."""
    return _running(emulator, bytes((_JUMP, _MEMORY, 0)))


def drawing_objects(emulator: bytes) -> bytes:
    """Return the state with its processor about to run a short frame that positions the objects."""
    # The positions of the five objects follow from saved numbers, but ale-py computes them only when the
    # numbers change, and does not save them. Moving all objects by nothing (HMCLR, HMOVE) makes ale-py
    # compute the positions, and so does writing the control of the playfield (CTRLPF) again.
    control = emulator[emulator.index(b"TIA") + len(b"TIA") + _CONTROL * _INT.size]
    return _running(emulator, _DRAW.replace(_ANY, bytes((control,))))


def _running(emulator: bytes, program: bytes) -> bytes:
    """Return the state with a program in the console's memory, which the processor runs next."""
    name = emulator.index(b"M6502")
    (length,) = _INT.unpack_from(emulator, name - _INT.size)
    counter = name + length + 5 * _INT.size  # after A, X, Y, SP and the instruction
    cells = emulator.index(b"M6532") + len(b"M6532") + _INT.size
    data = bytearray(emulator)
    data[counter : counter + _INT.size] = _INT.pack(_MEMORY)
    data[cells : cells + len(program) * _INT.size : _INT.size] = program  # one byte in every number
    return bytes(data)


def with_text(emulator: bytes, text: bytes = SHORT_TEXT) -> bytes:
    """Return a state with a text for the generator, which later states of an emulator then contain."""
    # A short text takes less time to write.
    (length,) = _INT.unpack_from(emulator, _LENGTH)
    head = emulator[:_LENGTH] + _INT.pack(length + len(text)) + emulator[_LENGTH + 4 : _TEXT_LENGTH]
    return head + _INT.pack(len(text)) + text + emulator[_TEXT:]
