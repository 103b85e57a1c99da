"""Saves and restores Atari games: the emulator, the frames that drew its picture, and the action that sticks.

`cloneState` of ale-py 0.12 leaves out three things that the next frames depend on:

    an interrupted frame        the emulator stops after 25,000 instructions even within a frame, and does not
                                save that it did. If such a state is restored, or any state while in one, the
                                emulator runs another number of cycles and writes beyond the picture
    positions of objects        the graphics chip computes them when certain numbers change, not when a state
                                is restored: objects may then be drawn, and collide, elsewhere
    the score of one game       see `_GolfScore`

So before a state is restored, the emulator computes the positions of its objects in a frame that is
discarded. Before a state within a frame is restored, the emulator interrupts a frame. More things are missing
from a state, or are left out here:

    the action that sticks      (`repeat_action_probability`, 0.25 in the v5 ids) is not saved: planvec draws
                                it, frame by frame, from `env.np_random` instead of the emulator's own
                                generator. So the generator is saved with the state, and `seeds` resamples it
    the generator of resets     is long, and follows from the number of resets since the game was loaded
    the picture                 consists of what earlier frames have left of it, and is not saved either

So a state is saved with a checkpoint, an earlier state, and the frames since. If somebody looks at the
picture before enough frames have repainted it, these frames are repeated from the checkpoint.

Source: Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import ale_py
import numpy as np
from ale_py.env import AtariEnv

from planvec.codecs.base import Codec
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import EnvError, UnsupportedEnvError

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


class _GolfScore:
    """Counts the numbers that the reward of Miniature Golf is computed from."""

    def __init__(self, memory: object) -> None:
        self._hole = self._par = self._wrapped = self._strokes = self._strokes_before = 0
        self.update(memory)

    def update(self, memory: Any) -> None:
        """Update the numbers after a frame."""
        digits = [divmod(int(memory[address]), 16) for address in (0x07, 0x08, 0x2F)]
        left, right, hole = (10 * tens + ones for tens, ones in digits)
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
_LOOP = bytes((_JUMP, _MEMORY, 0))  # a program: an endless loop of one instruction
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


class Saved(NamedTuple):
    """Holds one state, in the order of the fields of `AtariCodec.dtype`."""

    emulator: bytes  # the emulator, in ale-py's own form without the text of its generator
    checkpoint: bytes  # the emulator at an earlier time, not within a frame
    num_frames: int  # number of frames since the checkpoint
    frames: bytes  # their actions, `Emulator.frame_size` bytes a frame, followed by zeros
    held_action: int  # the action that a sticky action would repeat
    held_strength: float  # how far it turns the paddle
    is_within: bool  # whether the emulator is within a frame
    num_resets: int  # number of resets since the game was loaded
    since_reset: bool  # whether the checkpoint is the state after the latest reset
    # A later state that will become the checkpoint, if there is one
    next_checkpoint: bytes = b""  # the emulator, not within a frame
    next_offset: int = -1  # index of the following frame in the bytes of `frames`; -1: there is none
    next_num_whole: int = 0  # number of whole frames since


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


# -- The generator of the emulator, from which each reset draws the contents of the console's memory.
#
# Loading a game seeds it, always with the same number. So its text follows from the number of resets since.

# numbers of a Mersenne twister (MT19937), which the text lists, with the position after them
_STATE_SIZE = 624


class GeneratorTexts:
    """Knows the text of the generator after any number of resets."""

    def __init__(self, after_reset: Callable[[bytes], bytes]) -> None:
        self._after_reset = after_reset
        self._first = b""
        self._latest: tuple[int, bytes] = (0, b"")
        self._num_draws: int | None = None  # of one reset; None: not known yet

    def begin(self, text: bytes) -> None:
        """Note the text after the first reset since the game was loaded."""
        if text != self._first:
            self._first, self._num_draws = text, None
        self._latest = (1, text)

    def note(self, num_resets: int, text: bytes) -> None:
        """Note the text after a number of resets, which are often followed by the next one."""
        self._latest = (num_resets, text)

    def after(self, num_resets: int) -> bytes:
        """Return the text after a number of resets, at least one."""
        if num_resets == self._latest[0]:
            return self._latest[1]
        text = self._first
        if num_resets > 1 and self._num_draws is None:
            second = self._after_reset(text)
            self._num_draws = (_position(second) - _position(text)) % _STATE_SIZE
            if _advanced(text, self._num_draws) != second:
                self._num_draws = 0
        if num_resets > 1 and self._num_draws:
            text = _advanced(text, self._num_draws * (num_resets - 1))
        else:  # a game that draws in another way
            for _ in range(num_resets - 1):
                text = self._after_reset(text)
        self._latest = (num_resets, text)
        return text


def _position(text: bytes) -> int:
    return int(text.split()[-1])


def _advanced(text: bytes, num_draws: int) -> bytes:
    """Return the text after a number of draws."""
    *key, position = map(int, text.split())
    twister = np.random.MT19937()
    state: Any = {"key": np.array(key, np.uint32), "pos": position}
    twister.state = {"bit_generator": "MT19937", "state": state}
    twister.random_raw(num_draws, output=False)
    after = twister.state["state"]
    return b" ".join(str(number).encode() for number in (*after["key"].tolist(), after["pos"]))


# -- The frames since an earlier state of an Atari emulator, from which its picture can be drawn again.
#
#     checkpoint   frames   next checkpoint   frames   current state
#     ----------   ------   ---------------   ------   -------------
#     restored     run again                           has the right picture
#
# The next checkpoint replaces the checkpoint once the picture was repainted since.

# whole frames after which nothing is left of a picture: there are two buffers, drawn alternately
REPAINTED = 3
# Whole frames between two checkpoints. A checkpoint takes as long as half a frame.
_FRAMES_PER_CHECKPOINT = 16
# the same if every step repaints the picture, so that frames are seldom repeated
_FRAMES_PER_CHECKPOINT_OF_LONG_STEPS = 40
_MAX_INTERRUPTED = 32  # Frames in a row that may be interrupted, when no checkpoint can be made. 7 were seen.
# Games known to interrupt frames. All their frames are checked; in other games the last one of a step.
_INTERRUPTS_FRAMES = frozenset({"qbert", "tetris", "tic_tac_toe_3d", "video_checkers"})


_PICTURES = ("getScreen", "getScreenRGB", "getScreenGrayscale")  # ale-py's methods that return the picture
_SETTINGS: dict[str, tuple[str, ...]] = {
    "Bool": ("display_screen", "sound", "sound_obs", "color_averaging", "truncate_on_loss_of_life"),
    "Int": ("random_seed", "max_num_frames_per_episode", "frame_skip", "reward_min", "reward_max"),
}


class Emulator(ale_py.ALEInterface):
    """Replaces the `ale` of an `ale_py.AtariEnv`."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        previous = env.ale  # an `Emulator` if the environment is opened a second time
        self.state_size = len(serialize(previous))  # bytes of a state
        self._no_checkpoint = bytes(self.state_size)
        for kind, names in _SETTINGS.items():
            for name in names:
                getattr(self, f"set{kind}")(name, getattr(previous, f"get{kind}")(name))
        probability = previous.getFloat("repeat_action_probability")
        # the probability that a frame repeats the last action, drawn from `env.np_random`
        self.stickiness: float = previous.stickiness if isinstance(previous, Emulator) else probability
        self.setFloat("repeat_action_probability", 0.0)
        self._env = env
        self._loaded: list[Any] = []  # the game, its mode and its difficulty
        self._starts: dict[tuple[Any, ...], Start] = {}  # by the game, its mode and its difficulty
        self._start_repaints: bool | None = None  # None: not known yet
        self._load_pending = False  # whether the game is still to be loaded
        self._is_new = False  # whether the next reset is the first one since the game was loaded
        self._is_painted = False  # whether all of the picture was drawn since the last restore
        self._cached_state: bytes | None = None  # the current state, if it is known
        self._score: _GolfScore | None = None
        self._texts = GeneratorTexts(self._text_after_reset)
        self._turns_paddle = bool(env.continuous)
        self._frame = struct.Struct("<Bf" if self._turns_paddle else "<B")
        self.frame_size = self._frame.size  # bytes that the action of one frame takes
        self._interrupts_frames = env._game in _INTERRUPTS_FRAMES
        shortest = env._frameskip if isinstance(env._frameskip, int) else env._frameskip[0]
        # Whether every step repaints the picture. Then it also ends with a new checkpoint, if it began with a
        # restore.
        self.has_long_steps = shortest >= REPAINTED
        is_often_painted = self.has_long_steps and not self._interrupts_frames
        self._frames_per_checkpoint = (
            _FRAMES_PER_CHECKPOINT_OF_LONG_STEPS if is_often_painted else _FRAMES_PER_CHECKPOINT
        )
        # largest number of frames since the checkpoint
        self.max_frames = 2 * self._frames_per_checkpoint + _MAX_INTERRUPTED
        self._num_resets = 0  # since the game was loaded
        self._begin_episode()

    # -- games, frames, and states without their picture ----------------------------------------------

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
        # An interrupted frame is finished first: restoring a state within it would write beyond the picture.
        while not is_whole(self._state()):
            if self.game_over():
                super().reset_game()
            super().act(0)
            self._cached_state = None
        self._cached_state = None
        # An endless loop of one instruction draws no picture, so that nothing is written beyond it later.
        start = next(iter(self._starts.values())) if is_within else None
        self._load_state(drawing_objects(state) if start is None else _running(start.state, _LOOP))
        super().act(0)
        self._load_state(state)

    def _load_state(self, data: bytes) -> None:
        self.restoreState(ale_py.ALEState(data))
        self._is_painted = False
        if self._score is not None:
            self._score.read(data)

    # -- states with the frames since a checkpoint -----------------------------------------------------

    def _begin_episode(self) -> None:
        self._held: Frame = (0, 1.0)
        self._checkpoint, self._since_reset = b"", True
        self._frames = bytearray()  # the actions since the checkpoint
        self._next_checkpoint: tuple[bytes, int] | None = None  # it, and the offset of the following frame
        self._num_whole = 0  # whole frames since the next checkpoint, or since the checkpoint
        self._num_unpainted = 0  # whole frames until the picture is right
        self._cached_state = None
        self._is_within: bool | None = None  # whether the state lies within a frame; None: not known yet
        self._score = None

    def _note_frame(self, action: int, strength: float) -> None:
        """Note that a frame was run."""
        self._frames += self._frame.pack(action, strength) if self._turns_paddle else bytes((action,))
        self._cached_state = self._is_within = None
        if not self._interrupts_frames or is_whole(self._state()):
            self._num_whole += 1
            self._num_unpainted = max(0, self._num_unpainted - 1)
        if self._num_whole >= self._frames_per_checkpoint and is_whole(self._state()):
            # Few frames have to be repeated from a later checkpoint.
            self._advance_checkpoint()
            self._next_checkpoint, self._num_whole = (self._state(), len(self._frames)), 0

    def save(self) -> Saved:
        """Return the state that the emulator is in."""
        self._advance_checkpoint()
        is_within = self._is_within_frame()
        return Saved(
            self._state(),
            self._checkpoint,
            len(self._frames) // self.frame_size,
            bytes(self._frames).ljust(self.max_frames * self.frame_size, b"\0"),
            *self._held,
            is_within,
            self._num_resets,
            self._since_reset,
            *(self._next_checkpoint or (self._no_checkpoint, -1)),
            self._num_whole if self._next_checkpoint else 0,
        )

    def restore(self, saved: Saved) -> None:
        """Put the emulator into a state."""
        self._restore_state(saved.emulator, saved.is_within)
        self._checkpoint, self._held = saved.checkpoint, (saved.held_action, saved.held_strength)
        self._frames = bytearray(saved.frames[: saved.num_frames * self.frame_size])
        self._cached_state, self._is_within = saved.emulator, saved.is_within
        self._num_resets, self._since_reset = saved.num_resets, saved.since_reset
        self._num_unpainted = REPAINTED
        self._next_checkpoint, self._num_whole = None, 0
        if saved.next_offset >= 0:
            self._next_checkpoint = saved.next_checkpoint, saved.next_offset
            self._num_whole = saved.next_num_whole
        elif is_whole(saved.emulator):
            self._next_checkpoint = saved.emulator, len(self._frames)

    def _is_within_frame(self) -> bool:
        """Return whether the state lies within a frame, which shows only in the following frame."""
        state = self._state()
        if self._is_within is None:
            self._is_within = False
            if not is_whole(state) and not self.game_over():
                super().act(0)
                following = serialize(self)
                self._cached_state = None
                self._restore_state(state, True)
                super().act(0)
                is_within = serialize(self) == following
                self._cached_state = None
                self._restore_state(state, is_within)
                self._cached_state, self._is_within = state, is_within
                self._num_unpainted = REPAINTED
        return self._is_within

    def _advance_checkpoint(self) -> None:
        """Take the next checkpoint as the checkpoint, if the picture was repainted since."""
        if self._next_checkpoint is not None and self._num_whole >= REPAINTED:
            (self._checkpoint, offset), self._since_reset = self._next_checkpoint, False
            del self._frames[:offset]
            self._next_checkpoint = None

    # -- the interface of ale-py ----------------------------------------------------------------------

    def reset_game(self) -> None:
        """Start an episode."""
        if not self._loaded:  # no reset had a seed yet
            self._env.load_game()
        start = self._starts.get(tuple(self._loaded)) if self._is_new else None
        if start is not None:
            self._restore_state(start.state, start.is_within)
        else:
            if self._load_pending:
                self._load_game()
            elif not self._is_new:
                self._prepare_reset(self._num_resets)
            super().reset_game()
            self._is_painted = True
        self._num_resets = 1 if self._is_new else self._num_resets + 1
        self._begin_episode()
        if self._env._game == "miniature_golf":
            self._score = _GolfScore(self.getRAM())
        self._checkpoint = self._state()
        if start is not None:
            self._num_unpainted, self._is_within = REPAINTED, start.is_within
        else:
            # The generator's text is noted, and replaced by a short one.
            text = generator_text(self)
            if self._num_resets == 1:
                self._texts.begin(text)
            else:
                self._texts.note(self._num_resets, text)
            self._load_state(with_text(self._checkpoint))
        if start is None and self._is_new:
            ale = super()
            pictures = {name: getattr(ale, name)() for name in _PICTURES}
            # Whether the state lies within a frame is found by restoring it, for which a start must be known.
            self._starts[tuple(self._loaded)] = Start(self._checkpoint, False, pictures)
            if self._is_within_frame():
                self._starts[tuple(self._loaded)] = Start(self._checkpoint, True, pictures)
        self._is_new = self._load_pending = False

    def _prepare_reset(self, num_resets: int) -> None:
        """Put the generator where it is after a number of resets."""
        self._load_state(with_text(self._state(), self._texts.after(num_resets)))

    def _text_after_reset(self, text: bytes) -> bytes:
        """Return the text of the generator after a reset that begins with another text. Loses the state."""
        self._load_state(with_text(self._state(), text))
        super().reset_game()
        self._cached_state = None
        return generator_text(self)

    def act(self, action: Any, strength: float = 1.0) -> int:
        """Run one frame. With the probability `stickiness` the last action replaces the given one."""
        if not self.stickiness or self._env.np_random.random() >= self.stickiness:
            self._held = getattr(action, "_value_", action), float(strength)  # faster than `value`
        frame = self._held
        num_before = self.getEpisodeFrameNumber()
        reward = self._run_frame(*frame)
        if self.getEpisodeFrameNumber() > num_before:
            self._note_frame(*frame)
        return reward

    def getScreen(self, *buffer: object) -> Any:  # noqa: N802
        """Return the picture as indices of colours, or write it into a buffer."""
        return self._picture("getScreen", super().getScreen, buffer)

    def getScreenRGB(self, *buffer: object) -> Any:  # noqa: N802
        """Return the picture in colour, or write it into a buffer."""
        return self._picture("getScreenRGB", super().getScreenRGB, buffer)

    def getScreenGrayscale(self, *buffer: object) -> Any:  # noqa: N802
        """Return the picture in grey, or write it into a buffer."""
        return self._picture("getScreenGrayscale", super().getScreenGrayscale, buffer)

    # -- pictures -------------------------------------------------------------------------------------

    def _picture(self, name: str, get_picture: Callable[..., Any], buffer: tuple[object, ...]) -> Any:
        """Return the picture of the current state in one of ale-py's forms."""
        if self._is_painted:  # saves a look at the state, which takes a tenth of a step
            return get_picture(*buffer)
        if self._num_unpainted or not (self._interrupts_frames or is_whole(self._state())):
            start = None if self._frames else self._start_at_checkpoint()
            if start is not None:
                return start.picture(name, buffer)
            # The frames since the checkpoint are run again, which draws the picture.
            num_frames = len(self._frames) // self.frame_size
            is_near = self._since_reset and (self._interrupts_frames or num_frames < REPAINTED)
            self._restore_checkpoint(from_reset=is_near and not (num_frames and self._repaints_start()))
            for frame in self._frame.iter_unpack(self._frames):
                self._run_frame(*frame)
            self._num_unpainted, self._cached_state = 0, None
        else:
            self._is_painted = True
        return get_picture(*buffer)

    def _start_at_checkpoint(self) -> Start | None:
        return next((start for start in self._starts.values() if start.state == self._checkpoint), None)

    def _restore_checkpoint(self, from_reset: bool) -> None:
        """Restore the checkpoint."""
        if from_reset:
            if self._num_resets == 1:
                self._load_game()
            else:
                self._prepare_reset(self._num_resets - 1)
            super().reset_game()
            self._load_state(self._checkpoint)
            self._cached_state = None
        else:
            start = self._start_at_checkpoint()
            self._restore_state(self._checkpoint, start is not None and start.is_within)

    def _repaints_start(self) -> bool:
        """Return whether the first frames after a reset repaint the whole picture."""
        if self._start_repaints is None:
            pictures: list[list[bytes]] = [[], []]
            for from_reset in (True, False):
                self._restore_checkpoint(from_reset)
                for _ in range(REPAINTED):
                    super().act(0)
                    pictures[from_reset].append(super().getScreen().tobytes())
            self._start_repaints = pictures[0] == pictures[1] and not self._interrupts_frames
        return self._start_repaints


# -- The codec -----------------------------------------------------------------------------------------------


def codec_for_env(env: object, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # With `sound_obs` the actions are replayed: the sound depends on what many frames left in its buffer.
    if not isinstance(env, AtariEnv):
        return None
    if env.sound_obs:
        return FamilyCodec(None, is_verified=False)
    is_verified = type(env) is AtariEnv and wrappers is not WrapperSupport.MISSING
    return FamilyCodec(AtariCodec, is_verified)


class AtariCodec(Codec):
    """Saves an `ale_py.AtariEnv`, whose emulator is replaced by an `Emulator`."""

    how = "the emulator, now and a few frames ago"

    def __init__(self, env: Any) -> None:
        self._cartridge = cartridge(serialize(env.ale))
        self._emulator = env.ale = Emulator(env)
        if self._emulator.stickiness:
            self.note = "sticky actions are drawn from np_random instead of the emulator's own generator"
        self.draws = self._emulator.stickiness > 0 or not isinstance(env._frameskip, int)
        blob = f"V{self._emulator.state_size}"
        fields = [
            ("emulator", blob),
            ("checkpoint", blob),
            ("num_frames", "<i2"),
            ("frames", f"V{self._emulator.max_frames * self._emulator.frame_size}"),
            ("held_action", "u1"),
            ("held_strength", "<f4"),
            ("within_frame", "?"),
            ("num_resets", "<i4"),
            ("since_reset", "?"),
        ]
        if not self._emulator.has_long_steps:
            fields += [("next_checkpoint", blob), ("next_offset", "<i2"), ("next_num_whole", "<i2")]
        self.dtype = np.dtype(fields)
        self._num_fields = len(fields)

    def get(self, env: object) -> Any:
        saved, emulator = self._emulator.save(), self._emulator
        if saved.num_frames > emulator.max_frames:  # NumPy would cut them off, and longer states
            raise EnvError(
                f"frames: expected at most {emulator.max_frames} since the picture was last complete, "
                f'got {saved.num_frames}; pass codec="replay"'
            )
        if {*map(len, (saved.emulator, saved.checkpoint, saved.next_checkpoint))} != {emulator.state_size}:
            raise EnvError(
                f"emulator: expected {emulator.state_size} bytes in every state of this game, got "
                f'{len(saved.emulator)}; pass codec="replay"'
            )
        return saved[: self._num_fields]

    def set(self, env: Any, value: Any) -> None:
        saved = Saved(*value)
        if cartridge(saved.emulator) != self._cartridge:
            raise EnvError(f"states: expected states of {env._game}, got one of another game")
        self._emulator.restore(saved)

    def digests(self, saved: object) -> dict[str, bytes]:
        """Return digests of what decides about the future; see `Fields.digests`."""
        # The checkpoint depends on when the state was saved and restored. It only repaints the picture.
        now = self._emulator.save()
        held = now.held_action, now.held_strength
        return {"AtariEnv.ale": now.emulator, "the held action": repr(held).encode()}

    def observe(self, env: Any) -> Any:
        return env._get_obs()
