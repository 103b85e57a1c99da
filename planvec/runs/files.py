"""The files of a run, and how they are written: a file is replaced when the new one is complete.

run.json            the settings
steps.csv           one line per step, written as the run goes on
trajectory.npz      the first episode: seed, states, actions, rewards, observations, values
trajectory-2.npz    the second one, and so on
summary.json        what the episodes scored, and what they cost
events.out.*        scalars for TensorBoard, with `--tensorboard`
checkpoint.npz      what `--resume` needs; it is removed when the run is complete
"""

from __future__ import annotations

from pathlib import Path

from planvec.rows import replacing


class RunFiles:
    """Names the files of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "run.json"
        self.steps = directory / "steps.csv"
        self.summary = directory / "summary.json"
        self.checkpoint = directory / "checkpoint.npz"

    def trajectory(self, episode: int) -> Path:
        """Return the file of an episode, which is counted from 0."""
        return self.directory / (f"trajectory-{episode + 1}.npz" if episode else "trajectory.npz")

    def trajectories(self) -> list[Path]:
        """Return the files of the episodes that are there, in their order."""
        return sorted(self.directory.glob("trajectory*.npz"), key=lambda path: (len(path.name), path))

    def events(self) -> list[Path]:
        """Return TensorBoard's files, one for each time that the run was begun or resumed."""
        return sorted(self.directory.glob("events.out.tfevents.*"))

    def written(self) -> list[Path]:
        """Return the files that are there, the summary first."""
        files = [self.summary, *self.trajectories(), self.steps, self.config, *self.events(), self.checkpoint]
        return [path for path in files if path.exists()]

    def check_writable(self) -> None:
        """Make the directory, and write a file there, before anything is played."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self._unfinished():
            path.unlink(missing_ok=True)
        with replacing(self.directory / ".planvec") as path:
            path.touch()
        (self.directory / ".planvec").unlink()

    def _unfinished(self) -> list[Path]:
        """Return what was being written when a process was killed."""
        own = [self.config, self.steps, self.summary, self.checkpoint, self.directory / ".planvec"]
        names = {f".{path.stem}-{'[0-9a-f]' * 8}{path.suffix}" for path in own}
        names |= {f".trajectory*-{'[0-9a-f]' * 8}.npz", ".planvec"}
        return [path for name in names for path in self.directory.glob(name)]

    def clear(self) -> None:
        """Remove the files of an earlier run, which would be mixed up with those of a new one."""
        if not self.config.exists():
            return
        own = [self.config, self.steps, self.summary, self.checkpoint]
        for path in [*own, *self.trajectories(), *self.events()]:
            path.unlink(missing_ok=True)
