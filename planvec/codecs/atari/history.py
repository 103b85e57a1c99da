"""The frames since an earlier state of an Atari emulator, from which its picture can be drawn again.

    checkpoint   frames   next checkpoint   frames   current state
    ----------   ------   ---------------   ------   -------------
    restored     run again                           has the right picture

The next checkpoint replaces the checkpoint once the picture was repainted since.
"""

from __future__ import annotations

import struct
from typing import Any

from planvec.codecs.atari.console import Console
from planvec.codecs.atari.state import Checkpoint, Frame, Saved, is_whole, serialize

# whole frames after which nothing is left of a picture: there are two buffers, drawn alternately
REPAINTED = 3
# Whole frames between two checkpoints. A checkpoint takes as long as half a frame.
_FRAMES_PER_CHECKPOINT = 16
# the same if every step repaints the picture, so that frames are seldom repeated
_FRAMES_PER_CHECKPOINT_OF_LONG_STEPS = 40
_MAX_INTERRUPTED = 32  # Frames in a row that may be interrupted, when no checkpoint can be made. 7 were seen.
# Games known to interrupt frames. All their frames are checked; in other games the last one of a step.
_INTERRUPTS_FRAMES = frozenset({"qbert", "tetris", "tic_tac_toe_3d", "video_checkers"})


class History(Console):
    """Notes frames, and saves and restores states with them."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._env = env
        previous = env.ale  # a `History` if the environment is opened a second time
        probability = previous.getFloat("repeat_action_probability")
        # the probability that a frame repeats the last action, drawn from `env.np_random`
        self.stickiness: float = previous.stickiness if isinstance(previous, History) else probability
        self._frame = struct.Struct("<Bf" if env.continuous else "<B")
        self._turns_paddle = bool(env.continuous)
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

    def _begin_episode(self) -> None:
        self._held: Frame = (0, 1.0)
        self._checkpoint, self._since_reset = b"", True
        self._frames = bytearray()  # the actions since the checkpoint
        self._next_checkpoint: tuple[bytes, int] | None = None  # `Checkpoint`, without `num_whole`
        self._num_whole = 0  # whole frames since the next checkpoint, or since the checkpoint
        self._num_unpainted = 0  # whole frames until the picture is right
        self._cached_state = None
        self._is_within: bool | None = None  # whether the state lies within a frame; None: not known yet
        self._score = None

    def _packed(self, action: int, strength: float) -> bytes:
        """Return the bytes of a frame in `Saved.frames`."""
        return self._frame.pack(action, strength) if self._turns_paddle else bytes((action,))

    def _note_frames(self, actions: bytes, num_frames: int) -> None:
        """Note that frames were run: one, or several of a game that does not interrupt frames."""
        if not num_frames:
            return
        self._frames += actions[: num_frames * self.frame_size]
        self._cached_state = self._is_within = None
        if not self._interrupts_frames or is_whole(self._state()):
            self._num_whole += num_frames
            self._num_unpainted = max(0, self._num_unpainted - num_frames)
        if self._num_whole >= self._frames_per_checkpoint:
            self._set_next_checkpoint()

    def save(self) -> Saved:
        """Return the state that the emulator is in."""
        self._advance_checkpoint()
        following = self._next_checkpoint
        checkpoint = None if following is None else Checkpoint(*following, self._num_whole)
        is_within = self._is_within_frame()
        return Saved(
            self._state(),
            self._checkpoint,
            bytes(self._frames),
            self._held,
            is_within,
            self._num_resets,
            self._since_reset,
            checkpoint,
        )

    def restore(self, saved: Saved) -> None:
        """Put the emulator into a state."""
        self._restore_state(saved.emulator, saved.is_within)
        self._checkpoint, self._frames, self._held = saved.checkpoint, bytearray(saved.frames), saved.held
        self._cached_state, self._is_within = saved.emulator, saved.is_within
        self._num_resets, self._since_reset = saved.num_resets, saved.since_reset
        self._num_unpainted = REPAINTED
        following = saved.next_checkpoint
        if following is None and is_whole(saved.emulator):
            following = Checkpoint(saved.emulator, len(self._frames), 0)
        self._next_checkpoint = None if following is None else following[:2]
        self._num_whole = 0 if following is None else following.num_whole

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

    def _set_next_checkpoint(self) -> None:
        """Make the current state the next checkpoint, so that few frames have to be repeated."""
        state = self._state()
        if is_whole(state):
            self._advance_checkpoint()
            self._next_checkpoint, self._num_whole = (state, len(self._frames)), 0

    def _advance_checkpoint(self) -> None:
        """Take the next checkpoint as the checkpoint, if the picture was repainted since."""
        if self._next_checkpoint is not None and self._num_whole >= REPAINTED:
            (self._checkpoint, offset), self._since_reset = self._next_checkpoint, False
            del self._frames[:offset]
            self._next_checkpoint = None
