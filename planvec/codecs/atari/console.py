"""An Atari emulator whose state can be restored exactly, except for its picture.

`cloneState` of ale-py 0.12 leaves out three things that the next frames depend on:

    an interrupted frame        the emulator stops after 25,000 instructions even within a frame, and does not
                                save that it did. If such a state is restored, or any state while in one, the
                                emulator runs another number of cycles and writes beyond the picture
    positions of objects        the graphics chip computes them when certain numbers change, not when a state
                                is restored: objects may then be drawn, and collide, elsewhere
    the score of one game       see `golf`

So before a state is restored, the emulator computes the positions of its objects in a frame that is
discarded. Before a state within a frame is restored, the emulator interrupts a frame.

Source: Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739.
"""

from __future__ import annotations

from typing import Any

import ale_py

from planvec.codecs.atari.golf import GolfScore
from planvec.codecs.atari.state import Start, drawing_objects, is_whole, looping, serialize

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
