"""Planners: they choose actions by stepping states in batches, on any `BatchStepper`.

`planvec.Swarm` plans one action, `planvec.run_episode` acts until the episode ends.
"""

from __future__ import annotations

__all__: list[str] = []
