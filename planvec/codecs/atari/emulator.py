"""An Atari emulator that can be put into any of its states, exactly.

`cloneState` of ale-py 0.12 leaves out four things that the future depends on:

    the action that sticks      (`repeat_action_probability`) is not saved: `Emulator` draws stickiness itself
    a frame broken off          the emulator stops after 25,000 instructions even within a frame, and does
                                not save that it did. Restoring such a state, or restoring while in one,
                                runs another number of cycles and writes beyond the picture
    where objects are drawn     follows from saved numbers, but is worked out when these change, not when a
                                state is restored: objects may then be drawn, and collide, elsewhere
    the picture                 is what earlier frames left of it, and not saved either

So before a state is restored, the emulator works out where its objects are, in a frame that is left behind;
before one within a frame, it breaks off a frame. A state is saved with an earlier one and the frames acted
since, which are acted again when somebody looks at the picture before enough frames have repainted it.

Source: Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ale_py

from planvec.codecs.atari.golf import GolfScore
from planvec.codecs.atari.state import (
    Frame,
    Mark,
    Saved,
    Start,
    drawing_objects,
    is_start,
    is_whole,
    looping,
    serialize,
    with_short_text,
)

__all__ = ["Emulator"]

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
        before = env.ale  # one of these, where the environment is opened a second time
        probability = before.getFloat("repeat_action_probability")
        self.stickiness: float = before.stickiness if isinstance(before, Emulator) else probability
        for kind, names in _SETTINGS.items():
            for name in names:
                getattr(self, f"set{kind}")(name, getattr(env.ale, f"get{kind}")(name))
        self.setFloat("repeat_action_probability", 0.0)
        self._frame = struct.Struct("<Bf" if env.continuous else "<B")
        self._turns_paddle = bool(env.continuous)
        self.frame_size = self._frame.size
        self._breaks_off = env._game in _BREAKS_OFF
        self._loaded: list[Any] = []  # the game, its mode and its difficulty
        self._starts: dict[tuple[Any, ...], Start] = {}
        self._is_put_off = False  # whether the game is still to be loaded
        self._is_new = False  # whether the next reset is the first one since the game was loaded
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
        self._is_within: bool | None = None  # whether it lies within a frame, where that is known
        self._score: GolfScore | None = None

    # -- what the environment calls -------------------------------------------------------------------

    def loadROM(self, path: Any) -> None:  # noqa: N802 - ale-py's name, as are the next ones
        """Load a game. It takes 80 ms, and is put off where the next reset is known."""
        self._loaded, self._is_new = [path], True
        self._is_put_off = any(known[0] == path for known in self._starts)
        if not self._is_put_off:
            super().loadROM(path)

    def setMode(self, mode: int) -> None:  # noqa: N802
        """Choose a mode, from the next reset on."""
        self._loaded.append(("mode", mode))
        super().setMode(mode)

    def setDifficulty(self, difficulty: int) -> None:  # noqa: N802
        """Choose a difficulty, from the next reset on."""
        self._loaded.append(("difficulty", difficulty))
        super().setDifficulty(difficulty)

    def reset_game(self) -> None:
        """Start an episode."""
        start = self._starts.get(tuple(self._loaded)) if self._is_new else None
        if start is None:
            if self._is_put_off:
                self._load_anew()
            super().reset_game()
        else:
            self._put(start.state, start.is_within)
        self._begin()
        if self._env._game == "miniature_golf":
            self._score = GolfScore(self.getRAM())
        self._earlier = self._state()
        if start is not None:
            self._num_unpainted, self._is_within = _REPAINTED, start.is_within
        if self._is_new and start is None:
            looks = {
                "getScreen": super().getScreen(),
                "getScreenRGB": super().getScreenRGB(),
                "getScreenGrayscale": super().getScreenGrayscale(),
            }
            self._load(with_short_text(self._earlier))
            self._starts[tuple(self._loaded)] = Start(self._earlier, False, looks)
            if self._stands_within():
                self._starts[tuple(self._loaded)] = Start(self._earlier, True, looks)
        self._is_new = self._is_put_off = False

    def _load_anew(self) -> None:
        """Load the game, whether or not this was put off."""
        path, *choices = self._loaded
        super().loadROM(path)
        for name, value in choices:
            (super().setMode if name == "mode" else super().setDifficulty)(value)

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
        self._now = self._is_within = None
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

    def getScreen(self, *buffer: Any) -> Any:  # noqa: N802
        """The picture as numbers of colours."""
        return self._look("getScreen", super().getScreen, buffer)

    def getScreenRGB(self, *buffer: Any) -> Any:  # noqa: N802
        """The picture in colour."""
        return self._look("getScreenRGB", super().getScreenRGB, buffer)

    def getScreenGrayscale(self, *buffer: Any) -> Any:  # noqa: N802
        """The picture in grey."""
        return self._look("getScreenGrayscale", super().getScreenGrayscale, buffer)

    def _look(self, name: str, look: Callable[..., Any], buffer: tuple[Any, ...]) -> Any:
        """Look at the picture, made that of the state if it is not."""
        if self._num_unpainted or not (self._breaks_off or is_whole(self._state())):
            start = None if self._frames else self._start()
            if start is not None:
                return start.look(name, buffer)
            self._repeat()
        return look(*buffer)

    def _start(self) -> Start | None:
        return next((start for start in self._starts.values() if start.state == self._earlier), None)

    # -- states ---------------------------------------------------------------------------------------

    def save(self) -> Saved:
        """The state that the emulator is in."""
        self._forget()
        mark = None if self._mark is None else Mark(*self._mark, self._num_whole)
        is_within = self._stands_within()
        return Saved(self._state(), self._earlier, bytes(self._frames), self._held, is_within, mark)

    def restore(self, saved: Saved) -> None:
        """Put the emulator into a state."""
        self._put(saved.emulator, saved.is_within)
        self._earlier, self._frames, self._held = saved.earlier, bytearray(saved.frames), saved.held
        self._now, self._is_within = saved.emulator, saved.is_within
        self._num_unpainted = _REPAINTED
        mark = saved.mark
        if mark is None and is_whole(saved.emulator):
            mark = Mark(saved.emulator, len(self._frames), 0)
        self._mark, self._num_whole = (None, 0) if mark is None else (mark[:2], mark.num_whole)

    def _put(self, state: bytes, is_within: bool) -> None:
        """Restore a state, but not its picture."""
        self._finish_frame()
        # One instruction for ever draws no picture, so that nothing is written beyond it later.
        start = next(iter(self._starts.values())) if is_within else None
        self._load(drawing_objects(state) if start is None else looping(start.state))
        super().act(0)
        self._load(state)

    def _stands_within(self) -> bool:
        """Whether the emulator stands within a frame, which nothing tells but the frame that follows."""
        state = self._state()
        if self._is_within is None:
            self._is_within = False
            if not is_whole(state) and not self.game_over():
                super().act(0)
                following = serialize(self)
                self._now = None
                self._put(state, True)
                super().act(0)
                is_within = serialize(self) == following
                self._now = None
                self._put(state, is_within)
                self._now, self._is_within, self._num_unpainted = state, is_within, _REPAINTED
        return self._is_within

    def _state(self) -> bytes:
        if self._now is None:
            state = serialize(self)
            self._now = state if self._score is None else self._score.write(state)
        return self._now

    def _repeat(self) -> None:
        """Act the frames since the earlier state again, which draws the picture."""
        num_frames = len(self._frames) // self.frame_size
        is_near = is_start(self._earlier) and (self._breaks_off or num_frames < _REPAINTED)
        self._go_back(anew=is_near and not self._repaints_start())
        for frame in self._frame.iter_unpack(self._frames):
            self._frame_of(*frame)
        self._num_unpainted, self._now = 0, None

    def _go_back(self, anew: bool) -> None:
        """To the earlier state; `anew` from a game just loaded, whose reset draws the picture too."""
        if anew:
            self._load_anew()
            super().reset_game()
            self._load(self._earlier)
            self._now = None
        else:
            start = self._start()
            self._put(self._earlier, start is not None and start.is_within)

    def _repaints_start(self) -> bool:
        """Whether the first frames after a reset draw all of the picture: nothing is left of that before."""
        if self._start_repaints is None:
            pictures = []
            for anew in (True, False):
                self._go_back(anew)
                pictures.append([self._next_picture() for _ in range(_REPAINTED)])
            self._start_repaints = pictures[0] == pictures[1] and not self._breaks_off
        return self._start_repaints

    def _next_picture(self) -> bytes:
        super().act(0)
        return bytes(super().getScreen().tobytes())

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
        self._now = None

    def _load(self, data: bytes) -> None:
        self.restoreState(ale_py.ALEState(data))
        if self._score is not None:
            self._score.read(data)
