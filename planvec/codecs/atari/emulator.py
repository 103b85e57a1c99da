"""An Atari emulator that can be put into any of its states, including the picture and the action that sticks.

`Console` restores what the next frames depend on. More things are missing from a state of ale-py 0.12, or
are left out here:

    the action that sticks      (`repeat_action_probability`) is not saved: `Emulator` draws it
    the generator of resets     is long, and follows from the number of resets since the game was loaded
    the picture                 consists of what earlier frames have left of it, and is not saved either

So a state is saved with a checkpoint, an earlier state, and the frames since. If somebody looks at the
picture before enough frames have repainted it, these frames are repeated from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planvec.codecs.atari.generator import GeneratorTexts
from planvec.codecs.atari.golf import GolfScore
from planvec.codecs.atari.history import REPAINTED, History
from planvec.codecs.atari.state import Start, generator_text, is_whole, with_text


class Emulator(History):
    """Replaces the `ale` of an `ale_py.AtariEnv`."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._texts = GeneratorTexts(self._text_after_reset)
        self._start_repaints: bool | None = None  # None: not known yet

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
            self._score = GolfScore(self.getRAM())
        self._checkpoint = self._state()
        if start is not None:
            self._num_unpainted, self._is_within = REPAINTED, start.is_within
        else:
            self._note_text()
            if self._is_new:
                self._note_start()
        self._is_new = self._load_pending = False

    def _prepare_reset(self, num_resets: int) -> None:
        """Put the generator where it is after a number of resets."""
        self._load_state(with_text(self._state(), self._texts.after(num_resets)))

    def _note_text(self) -> None:
        """Note the text of the generator, and replace it by a short one."""
        text = generator_text(self)
        if self._num_resets == 1:
            self._texts.begin(text)
        else:
            self._texts.note(self._num_resets, text)
        self._load_state(with_text(self._checkpoint))

    def _text_after_reset(self, text: bytes) -> bytes:
        """Return the text of the generator after a reset that begins with another text. Loses the state."""
        self._load_state(with_text(self._state(), text))
        super().reset_game()
        self._cached_state = None
        return generator_text(self)

    def _note_start(self) -> None:
        """Note the state and the pictures of the first reset since the game was loaded."""
        pictures = {
            "getScreen": super().getScreen(),
            "getScreenRGB": super().getScreenRGB(),
            "getScreenGrayscale": super().getScreenGrayscale(),
        }
        self._starts[tuple(self._loaded)] = Start(self._checkpoint, False, pictures)
        if self._is_within_frame():
            self._starts[tuple(self._loaded)] = Start(self._checkpoint, True, pictures)

    def act(self, action: Any, strength: float = 1.0) -> int:
        """Run one frame. With the probability `stickiness` the last action replaces the given one."""
        if not self.stickiness or self._env.np_random.random() >= self.stickiness:
            self._held = getattr(action, "_value_", action), float(strength)  # faster than `value`
        frame = self._held
        num_before = self.getEpisodeFrameNumber()
        reward = self._run_frame(*frame)
        self._note_frames(self._packed(*frame), self.getEpisodeFrameNumber() - num_before)
        return reward

    def act_repeatedly(self, action: Any, num_frames: int) -> int:
        """Run several frames as `act` does, and return the sum of their rewards."""
        if self._turns_paddle or self._interrupts_frames or self._score is not None:
            return sum(self.act(action) for _ in range(num_frames))
        number = getattr(action, "_value_", action)
        actions = [number] * num_frames
        if self.stickiness:
            held = self._held[0]
            for frame, draw in enumerate(self._env.np_random.random(num_frames).tolist()):
                actions[frame] = held = held if draw < self.stickiness else number
        run, reward = super().act, 0
        while actions:
            now = actions[: max(1, self._frames_per_checkpoint - self._num_whole)]
            num_before = self.getEpisodeFrameNumber()
            for number in now:
                reward += run(number)
            self._held = number, 1.0
            self._note_frames(bytes(now), self.getEpisodeFrameNumber() - num_before)
            del actions[: len(now)]
        return reward

    def getScreen(self, *buffer: Any) -> Any:  # noqa: N802
        """Return the picture as indices of colours, or write it into a buffer."""
        return self._picture("getScreen", super().getScreen, buffer)

    def getScreenRGB(self, *buffer: Any) -> Any:  # noqa: N802
        """Return the picture in colour, or write it into a buffer."""
        return self._picture("getScreenRGB", super().getScreenRGB, buffer)

    def getScreenGrayscale(self, *buffer: Any) -> Any:  # noqa: N802
        """Return the picture in grey, or write it into a buffer."""
        return self._picture("getScreenGrayscale", super().getScreenGrayscale, buffer)

    # -- pictures -------------------------------------------------------------------------------------

    def _picture(self, name: str, get_picture: Callable[..., Any], buffer: tuple[Any, ...]) -> Any:
        """Return the picture of the current state in one of ale-py's forms."""
        if self._is_painted:  # saves a look at the state, which takes a tenth of a step
            return get_picture(*buffer)
        if self._num_unpainted or not (self._interrupts_frames or is_whole(self._state())):
            start = None if self._frames else self._start_at_checkpoint()
            if start is not None:
                return start.picture(name, buffer)
            self._repeat_frames()
        else:
            self._is_painted = True
        return get_picture(*buffer)

    def _start_at_checkpoint(self) -> Start | None:
        return next((start for start in self._starts.values() if start.state == self._checkpoint), None)

    def _repeat_frames(self) -> None:
        """Run the frames since the checkpoint again, which draws the picture."""
        num_frames = len(self._frames) // self.frame_size
        is_near = self._since_reset and (self._interrupts_frames or num_frames < REPAINTED)
        self._restore_checkpoint(from_reset=is_near and not (num_frames and self._repaints_start()))
        for frame in self._frame.iter_unpack(self._frames):
            self._run_frame(*frame)
        self._num_unpainted, self._cached_state = 0, None

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
            pictures = []
            for from_reset in (True, False):
                self._restore_checkpoint(from_reset)
                pictures.append([self._next_picture() for _ in range(REPAINTED)])
            self._start_repaints = pictures[0] == pictures[1] and not self._interrupts_frames
        return self._start_repaints

    def _next_picture(self) -> bytes:
        super().act(0)
        return bytes(super().getScreen().tobytes())
