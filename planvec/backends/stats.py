"""What a `BatchEnv` has done, and what has gone wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stats"]


@dataclass(slots=True)
class Stats:
    """Counts since the environment was opened.

    Attributes:
        num_rows: Rows stepped or rolled out.
        num_chunks: Requests that they were sent in.
        restarts: Workers replaced, for whatever reason: the sum of the next four.
        crashes: Of these, workers that died: by a signal, or by an exit.
        timeouts: Workers killed because a chunk took longer than `timeout`.
        stopped: Workers killed because somebody had stopped them (SIGSTOP), or because a signal
            handler of the caller's had interrupted a message to them, or a call that they worked for.
        outgrown: Workers replaced because they took more memory than `max_worker_rss`.
        retries: Requests sent again.
        masked_rows: Rows that came back flagged, with `on_error="mask"`.
    """

    num_rows: int = 0
    num_chunks: int = 0
    restarts: int = 0
    crashes: int = 0
    timeouts: int = 0
    stopped: int = 0
    outgrown: int = 0
    retries: int = 0
    masked_rows: int = 0
