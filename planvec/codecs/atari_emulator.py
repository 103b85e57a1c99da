"""An Atari emulator that can be put into any of its states, exactly.

`cloneState` of ale-py 0.12 leaves out three things that the future depends on:

    the action that sticks      (`repeat_action_probability`) is not saved: `Emulator` draws stickiness itself
    a frame broken off          the emulator stops after 25,000 instructions even within a frame, and does
                                not save that it did. Restoring such a state, or restoring while in one,
                                runs another number of cycles and writes beyond the picture
    the picture                 is what earlier frames left of it, and not saved either

So a state is saved with an earlier one and the frames acted since: `Saved`. The state itself is restored, or,
where it lies within a frame, the way to it is acted again; and so it is when somebody looks at the picture
before enough frames were acted to have repainted it.

Source: Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import ale_py

from planvec.codecs.atari_golf import GolfScore
from planvec.errors import UnsupportedEnvError

__all__ = ["Emulator", "Frame", "Mark", "Saved"]

Frame = tuple[int, float]
"""The action of one frame, and how far the paddle is turned."""

_REPAINTED = 3
"""Whole frames after which nothing is left of a picture: there are two buffers, drawn in turn."""

_MARK_AFTER = 16
"""An earlier state is remembered about every so many frames: it costs half a frame."""
_BREAKS_OFF = frozenset({"qbert", "tetris", "tic_tac_toe_3d", "video_checkers"})
"""Games seen to break off frames: every frame of them is looked at. (In others, the last one of a step.)"""
_SETTINGS: dict[str, tuple[str, ...]] = {
    "Bool": ("display_screen", "sound", "sound_obs", "color_averaging", "truncate_on_loss_of_life"),
    "Int": ("max_num_frames_per_episode", "frame_skip", "reward_min", "reward_max"),
}
_INT = struct.Struct("<i")
# The head of a serialized state: six numbers (the fourth counts the frames of the episode), the length of
# the rest, the checksum of the cartridge, "System", its cycles, and the length of a generator's text.
_EPISODE_FRAMES, _LENGTH, _CARTRIDGE, _SYSTEM = slice(12, 16), 24, slice(32, 64), slice(68, 74)
_CYCLES, _TEXT_LENGTH, _TEXT = slice(74, 78), 78, 82
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
        mark: A state on the way that will be the next `earlier`, if there is one.
    """

    emulator: bytes
    earlier: bytes
    frames: bytes
    held: Frame
    mark: Mark | None = None


class Emulator(ale_py.ALEInterface):
    """Takes the place of the `ale` of an `ale_py.AtariEnv`.

    Args:
        env: The environment. Its game is loaded into this emulator by `env.load_game()`, which a reset
            with a seed calls.

    Attributes:
        stickiness: The probability that a frame repeats the last action, drawn from `env.np_random`.
        frame_size: Bytes that the action of one frame takes.
    """

    def __init__(self, env: Any) -> None:
        super().__init__()
        self._env = env
        self.stickiness = float(env.ale.getFloat("repeat_action_probability"))
        for kind, names in _SETTINGS.items():
            for name in names:
                getattr(self, f"set{kind}")(name, getattr(env.ale, f"get{kind}")(name))
        self.setFloat("repeat_action_probability", 0.0)
        self._frame = struct.Struct("<Bf" if env.continuous else "<B")
        self._turns_paddle = bool(env.continuous)
        self.frame_size = self._frame.size
        self._breaks_off = env._game in _BREAKS_OFF
        self._start_repaints: bool | None = None
        self._begin()

    def _begin(self) -> None:
        self._held: Frame = (0, 1.0)
        self._earlier = b""
        self._frames = bytearray()  # acted since `_earlier`
        self._mark: tuple[bytes, int] | None = None  # a `Mark`, and the whole frames since it
        self._num_whole = 0
        self._num_unpainted = 0  # whole frames to come until the picture is right
        self._now: bytes | None = None  # the state, where it is known
        self._score: GolfScore | None = None

    # -- what the environment calls -------------------------------------------------------------------

    def reset_game(self) -> None:
        """Start an episode."""
        super().reset_game()
        self._begin()
        if self._env._game == "miniature_golf":
            self._score = GolfScore(self.getRAM())
        self._earlier = self._state()

    def act(self, action: Any, strength: float = 1.0) -> int:
        """One frame; with the probability `stickiness` of the last action instead of this."""
        if self.stickiness and self._env.np_random.random() < self.stickiness:
            frame = self._held
        else:
            frame = self._held = (getattr(action, "value", action), float(strength))
        reward = self._frame_of(*frame)
        if self._turns_paddle:
            self._frames += self._frame.pack(*frame)
        else:
            self._frames.append(frame[0])
        self._now = None
        if not self._breaks_off or is_whole(self._state()):
            self._num_whole += 1
            self._num_unpainted -= self._num_unpainted > 0
        if self._num_whole >= _MARK_AFTER:
            self._move_on()
        return reward

    def _frame_of(self, action: int, strength: float = 1.0) -> int:
        reward: int = super().act(action, strength)
        if self._score is not None:
            self._score.see(self.getRAM())
        return reward

    def getScreen(self, *buffer: Any) -> Any:  # noqa: N802 - ale-py's name, as are the next ones
        """The picture as numbers of colours."""
        self._paint()
        return super().getScreen(*buffer)

    def getScreenRGB(self, *buffer: Any) -> Any:  # noqa: N802
        """The picture in colour."""
        self._paint()
        return super().getScreenRGB(*buffer)

    def getScreenGrayscale(self, *buffer: Any) -> Any:  # noqa: N802
        """The picture in grey."""
        self._paint()
        return super().getScreenGrayscale(*buffer)

    def getAudio(self, *buffer: Any) -> Any:  # noqa: N802
        """The sound of the last frame."""
        self._paint()
        return super().getAudio(*buffer)

    # -- states ---------------------------------------------------------------------------------------

    def save(self) -> Saved:
        """The state that the emulator is in."""
        self._forget()
        mark = None if self._mark is None else Mark(*self._mark, self._num_whole)
        return Saved(self._state(), self._earlier, bytes(self._frames), self._held, mark)

    def restore(self, saved: Saved) -> None:
        """Put the emulator into a state."""
        self._finish_frame()
        self._earlier, self._frames, self._held = saved.earlier, bytearray(saved.frames), saved.held
        mark = saved.mark
        if not is_whole(saved.emulator):
            self._repeat()
        else:
            self._load(saved.emulator)
            self._now, self._num_unpainted = saved.emulator, _REPAINTED
            mark = mark or Mark(saved.emulator, len(self._frames), 0)
        self._mark, self._num_whole = (None, 0) if mark is None else (mark[:2], mark.num_whole)

    def _state(self) -> bytes:
        if self._now is None:
            self._now = self._serialize()
        return self._now

    def _paint(self) -> None:
        """Make the picture that of the state, if it is not."""
        if self._num_unpainted or not (self._breaks_off or is_whole(self._state())):
            self._finish_frame()
            self._repeat()

    def _repeat(self) -> None:
        """Act the frames since the earlier state again."""
        self._paint_start()
        self._load(self._earlier)
        for frame in self._frame.iter_unpack(self._frames):
            self._frame_of(*frame)
        self._num_unpainted, self._now = 0, None

    def _paint_start(self) -> None:
        """Where too few frames follow a reset to repaint the picture, make that of the reset."""
        num_frames = len(self._frames) // self.frame_size
        if self._earlier[_EPISODE_FRAMES] != _INT.pack(0) or not (
            self._breaks_off or num_frames < _REPAINTED
        ):
            return
        if self._start_repaints is None:
            # Loading a game takes 80 ms, so look once whether the first frames draw all of the picture.
            pictures = []
            for make_ready in (self._reload, lambda: None):
                make_ready()
                self._load(self._earlier)
                pictures.append([self._next_picture() for _ in range(_REPAINTED)])
            self._start_repaints = pictures[0] == pictures[1] and not self._breaks_off
        if not (num_frames and self._start_repaints):
            self._reload()

    def _next_picture(self) -> bytes:
        super().act(0)
        return bytes(super().getScreen().tobytes())

    def _reload(self) -> None:
        """Load the game anew: every reset of a new console gives the same picture."""
        self._env.load_game()
        super().reset_game()

    def _move_on(self) -> None:
        """Mark this state, so that the way from the earlier one stays short."""
        state = self._state()
        if is_whole(state):
            self._forget()
            self._mark, self._num_whole = (state, len(self._frames)), 0

    def _forget(self) -> None:
        """Start from the mark from now on, where the picture is repainted since."""
        if self._mark is not None and self._num_whole >= _REPAINTED:
            self._earlier, place = self._mark
            del self._frames[:place]
            self._mark = None

    def _finish_frame(self) -> None:
        """Finish a frame that was broken off: restoring within one would write beyond the picture."""
        while not is_whole(self._state()):
            if self.game_over():
                super().reset_game()
            super().act(0)
            self._now = None

    def _load(self, data: bytes) -> None:
        self.restoreState(ale_py.ALEState(data))
        if self._score is not None:
            self._score.read(data)

    def _serialize(self) -> bytes:
        """The state in ale-py's form, less the text of a generator that nothing draws from.

        That is seven eighths of the whole and takes most of the time of a restore; it is the same for
        every seed. ale-py leaves the generator as it is where the text is empty.
        """
        data: bytes = self.cloneState().serialize()
        if data[_SYSTEM] != b"System":
            raise UnsupportedEnvError(
                f"ale-py {ale_py.__version__} saves states in a form that planvec does not know; install "
                'ale-py 0.12, or pass codec="replay"'
            )
        (length,), (text,) = _INT.unpack_from(data, _LENGTH), _INT.unpack_from(data, _TEXT_LENGTH)
        head = data[:_LENGTH] + _INT.pack(length - text) + data[_LENGTH + 4 : _TEXT_LENGTH]
        state = head + _INT.pack(0) + data[_TEXT + text :]
        return state if self._score is None else self._score.write(state)


def is_whole(emulator: bytes) -> bool:
    """Whether a state is surely not within a frame."""
    return int.from_bytes(emulator[_CYCLES], "little") < _CYCLES_OF_A_BREAK


def cartridge(emulator: bytes) -> bytes:
    """The checksum of the game."""
    return emulator[_CARTRIDGE]
