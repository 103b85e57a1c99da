"""Trains DI-engine's DQN on its CartPole, and prints a digest of the network: run by `test_ding`.

Arguments: the configuration of the environment manager as JSON, and seconds between two kills (0: no kills).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from typing import Any

from ding.entry import serial_pipeline
from easydict import EasyDict

from planvec.vector.ding import SyncSubprocessEnvManager

NUM_ITERATIONS = 300


def configurations(manager: dict[str, Any]) -> list[EasyDict]:
    main = EasyDict(
        exp_name="experiment",
        env={
            "collector_env_num": 8,
            "evaluator_env_num": 2,
            "n_evaluator_episode": 2,
            "stop_value": 1e9,
            "manager": {},
        },
        policy={
            "cuda": False,
            "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [32, 32]},
            "learn": {"update_per_collect": 5, "batch_size": 64, "learning_rate": 1e-3},
            "collect": {"n_sample": 80},
            "eval": {"evaluator": {"eval_freq": 100}},
            "other": {
                "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
                "replay_buffer": {"replay_buffer_size": 20000},
            },
        },
    )
    create = EasyDict(
        env={"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
        env_manager=manager,
        policy={"type": "dqn"},
    )
    return [main, create]


launched: list[SyncSubprocessEnvManager] = []


def kill_workers(seconds: float, is_over: threading.Event, kills: list[int]) -> None:
    """Kill the workers of the collector, one after another, each when it is ready."""
    while not is_over.wait(seconds):
        for manager in launched[:1]:
            worker = manager._fleet._engine._processes.workers[len(kills) % 2]
            if worker.is_ready:
                os.kill(worker.pid, signal.SIGKILL)
                kills.append(worker.pid)


def main(manager: dict[str, Any], seconds: float) -> None:
    launch = SyncSubprocessEnvManager.launch

    def record(self: SyncSubprocessEnvManager, *args: Any) -> None:
        launch(self, *args)
        launched.append(self)

    SyncSubprocessEnvManager.launch = record  # type: ignore[method-assign]
    is_over, kills = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_workers, args=(seconds or 1e6, is_over, kills))
    killer.start()
    try:
        policy = serial_pipeline(configurations(manager), seed=0, max_train_iter=NUM_ITERATIONS)
    finally:
        is_over.set()
        killer.join()
    if seconds and not kills:
        raise SystemExit("no worker was killed")
    parameters = b"".join(part.detach().numpy().tobytes() for part in policy._model.parameters())
    print(hashlib.sha1(parameters).hexdigest())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), float(sys.argv[2]))
