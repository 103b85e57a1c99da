"""What a batch is: arrays of states and actions, requests, results, infos, promises."""

from __future__ import annotations

__all__: list[str] = []
