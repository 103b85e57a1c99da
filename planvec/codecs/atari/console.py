"""An Atari emulator whose state can be restored exactly, except for its picture.

`cloneState` of ale-py 0.12 leaves out three things that the next frames depend on:

    an interrupted frame        the emulator stops after 25,000 instructions even within a frame, and does not
                                save that it did. If such a state is restored, or any state while in one, the
                                emulator runs another number of cycles and writes beyond the picture
    positions of objects        the graphics chip computes them when certain numbers change, not when a state
                                is restored: objects may then be drawn, and collide, elsewhere
    the score of one game       see `GolfScore`

So before a state is restored, the emulator computes the positions of its objects in a frame that is
discarded. Before a state within a frame is restored, the emulator interrupts a frame.

Source: Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ale_py

from planvec.errors import UnsupportedEnvError

# -- The score of Miniature Golf, which ale-py 0.12 saves as flags instead of numbers.
#
# `MiniatureGolfSettings::saveState` writes five numbers as booleans and reads them back as numbers, so the
# reward for a hole is lost after a restore. The numbers follow from the memory of the console, frame by
# frame. They are counted here too, and replace the flags in the saved state.
#
# Source: Farama-Foundation/Arcade-Learning-Environment, pull request 732 (fixed after 0.12.1).

_NUMBERS = struct.Struct("<5i")
_SCORE = slice(-32, -12)  # before the flag for the generator and the two limits of the paddles
_FALSE, _TRUE = -0x452E452E, -0x054E054E  # the two booleans, in the form of a saved state


def _decimal(byte: int) -> int:
    return 10 * (byte >> 4) + (byte & 15)


class GolfScore:
    """Counts the numbers that the reward of Miniature Golf is computed from."""

    def __init__(self, memory: Any) -> None:
        self._hole = self._par = self._wrapped = self._strokes = self._strokes_before = 0
        self.update(memory)

    def update(self, memory: Any) -> None:
        """Update the numbers after a frame."""
        left, right, hole = (_decimal(int(memory[address])) for address in (0x07, 0x08, 0x2F))
        if hole != self._hole:
            self._hole, self._wrapped, self._strokes_before = hole, 0, self._strokes
        if right:
            # Between two holes the right display shows the par, and the left one the number of the hole.
            self._par = right
            return
        if left < self._strokes:  # the display has two digits
            self._wrapped += self._strokes
        self._strokes = left

    def write(self, state: bytes) -> bytes:
        """Return a saved state with the numbers instead of the flags."""
        flags = _NUMBERS.unpack(state[_SCORE])
        if not {_FALSE, _TRUE}.issuperset(flags):
            return state  # a later ale-py saves numbers
        numbers = self._hole, self._par, self._wrapped, self._strokes, self._strokes_before
        if tuple(_TRUE if number else _FALSE for number in numbers) != flags:
            raise UnsupportedEnvError(
                f"Miniature Golf: expected flags that fit the score {numbers}, got {flags}; pass "
                'codec="replay"'
            )
        return state[: _SCORE.start] + _NUMBERS.pack(*numbers) + state[_SCORE.stop :]

    def read(self, state: bytes) -> None:
        """Read the numbers from a saved state."""
        (self._hole, self._par, self._wrapped, self._strokes, self._strokes_before) = _NUMBERS.unpack(
            state[_SCORE]
        )


# -- The form of an Atari state: ale-py's own, without the text of a generator -------------------------------

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


_SETTINGS: dict[str, tuple[str, ...]] = {
    "Bool": ("display_screen", "sound", "sound_obs", "color_averaging", "truncate_on_loss_of_life"),
    "Int": ("random_seed", "max_num_frames_per_episode", "frame_skip", "reward_min", "reward_max"),
}


class Console(ale_py.ALEInterface):
    """Loads games, runs single frames, and restores states without their picture."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        for kind, names in _SETTINGS.items():
            for name in names:
                getattr(self, f"set{kind}")(name, getattr(env.ale, f"get{kind}")(name))
        self.setFloat("repeat_action_probability", 0.0)
        self._loaded: list[Any] = []  # the game, its mode and its difficulty
        self._starts: dict[tuple[Any, ...], Start] = {}  # by the game, its mode and its difficulty
        self._load_pending = False  # whether the game is still to be loaded
        self._is_new = False  # whether the next reset is the first one since the game was loaded
        self._is_painted = False  # whether all of the picture was drawn since the last restore
        self._cached_state: bytes | None = None  # the current state, if it is known
        self._score: GolfScore | None = None

    def loadROM(self, path: Any) -> None:  # noqa: N802 - ale-py's name, as are the next ones
        """Load a game. That takes 80 ms, and is postponed if the state after the next reset is known."""
        self._loaded, self._is_new = [path], True
        self._load_pending = any(known[0] == path for known in self._starts)
        if not self._load_pending:
            super().loadROM(path)

    def setMode(self, mode: int) -> None:  # noqa: N802
        """Choose a mode, from the next reset on."""
        self._loaded.append(("mode", mode))
        super().setMode(mode)

    def setDifficulty(self, difficulty: int) -> None:  # noqa: N802
        """Choose a difficulty, from the next reset on."""
        self._loaded.append(("difficulty", difficulty))
        super().setDifficulty(difficulty)

    def _load_game(self) -> None:
        """Load the game, even if it was loaded before."""
        path, *choices = self._loaded
        super().loadROM(path)
        for name, value in choices:
            (super().setMode if name == "mode" else super().setDifficulty)(value)

    def _run_frame(self, action: int, strength: float = 1.0) -> int:
        reward: int = super().act(action, strength)
        if self._score is not None:
            self._score.update(self.getRAM())
        return reward

    def _state(self) -> bytes:
        """Return the current state, without the text of the generator; see `serialize`."""
        if self._cached_state is None:
            state = serialize(self)
            self._cached_state = state if self._score is None else self._score.write(state)
        return self._cached_state

    def _restore_state(self, state: bytes, is_within: bool) -> None:
        """Restore a state, but not its picture."""
        self._finish_frame()
        # An endless loop of one instruction draws no picture, so that nothing is written beyond it later.
        start = next(iter(self._starts.values())) if is_within else None
        self._load_state(drawing_objects(state) if start is None else looping(start.state))
        super().act(0)
        self._load_state(state)

    def _finish_frame(self) -> None:
        """Finish an interrupted frame: restoring a state within it would write beyond the picture."""
        while not is_whole(self._state()):
            if self.game_over():
                super().reset_game()
            super().act(0)
            self._cached_state = None
        self._cached_state = None

    def _load_state(self, data: bytes) -> None:
        self.restoreState(ale_py.ALEState(data))
        self._is_painted = False
        if self._score is not None:
            self._score.read(data)
