"""Trains DI-engine's DQN on its CartPole, and prints a digest of the network: run by `test_ding`.

Arguments: the configuration of the environment manager as JSON, and the number of steps of the collector
between two kills (0: no kills).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from typing import Any

from ding.entry import serial_pipeline
from easydict import EasyDict

from planvec.vector.ding import SyncSubprocessEnvManager

NUM_ITERATIONS = 300
NUM_COLLECTED = 8


def configurations(manager: dict[str, Any]) -> list[EasyDict]:
    main = EasyDict(
        exp_name="experiment",
        env={
            "collector_env_num": NUM_COLLECTED,
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


def kill_at_steps(steps_between: int) -> list[int]:
    """Let the manager of the collector kill its workers in turn; return the list of the dead."""
    step, killed = SyncSubprocessEnvManager.step, list[int]()
    num_steps = 0

    def step_and_kill(self: SyncSubprocessEnvManager, actions: Any) -> Any:
        nonlocal num_steps
        if self.env_num == NUM_COLLECTED:
            num_steps += 1
            worker = self._fleet._engine._processes.workers[len(killed) % 2]
            if num_steps >= steps_between * (len(killed) + 1) and worker.is_ready:
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)
        return step(self, actions)

    SyncSubprocessEnvManager.step = step_and_kill  # type: ignore[method-assign]
    return killed


def main(manager: dict[str, Any], steps_between: int) -> None:
    killed = kill_at_steps(steps_between) if steps_between else []
    policy = serial_pipeline(configurations(manager), seed=0, max_train_iter=NUM_ITERATIONS)
    if steps_between and len(killed) < 2:
        raise SystemExit(f"expected a death of each worker, got {killed}")
    parameters = b"".join(part.detach().numpy().tobytes() for part in policy._model.parameters())
    print(hashlib.sha1(parameters).hexdigest())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
