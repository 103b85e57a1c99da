"""stable-baselines3's vector interface, held against its own `SubprocVecEnv`. Needs the extra `sb3`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from compare import assert_same
from environments import Warehouse
from faulty import ARMED, Faulty, TwoArguments, fault
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from methods import METHODS
from sharing import KINDS, REUSING, SameArrays, Walk, forget
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv as Peer
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecMonitor, VecNormalize
from vectors import cartpole, kill_worker, processes_of, random_actions

from planvec.codecs import same
from planvec.errors import EnvError
from planvec.vector import SubprocVecEnv


def make(env_fns: Any = (cartpole,) * 3, **options: Any) -> SubprocVecEnv:
    options.setdefault("num_workers", 2)
    return SubprocVecEnv(list(env_fns), **options)


def without_time(infos: Any) -> list[dict[str, Any]]:
    """Infos without the seconds since the start, which `Monitor` adds."""
    return [
        {
            key: {k: v for k, v in value.items() if k != "t"} if key == "episode" else value
            for key, value in info.items()
        }
        for info in infos
    ]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_returns_what_stable_baselines_returns(num_workers: int) -> None:
    ours, peer = make(num_workers=num_workers), Peer([cartpole] * 3)
    assert isinstance(ours, VecEnv)
    assert ours.seed(4) == peer.seed(4)
    assert_same(ours.reset(), peer.reset())
    num_ends, kept, before = 0, ours.reset_infos, list(ours.reset_infos)
    for action in random_actions(cartpole().action_space, 3, 120):
        got, expected = ours.step(action), peer.step(action)
        assert_same(got[:3], expected[:3])
        assert_same(list(got[3]), list(expected[3]))
        assert isinstance(got[3], tuple)
        assert [part.dtype for part in got[:3]] == [part.dtype for part in expected[:3]]
        assert_same(list(ours.reset_infos), list(peer.reset_infos))
        num_ends += int(got[2].sum())
    assert num_ends > 3
    assert all(one is other for one, other in zip(kept, before, strict=True))
    ours.close()
    peer.close()


def walk(env: Any) -> list[Any]:
    """What an environment returns on a walk. Results are kept, not copied."""
    actions = np.random.default_rng(3)
    env.seed(3)
    seen: list[Any] = [(env.reset(), [*env.reset_infos])]
    for _ in range(25):
        seen.append((*env.step(actions.integers(1, 4, env.num_envs)), [*env.reset_infos]))
    env.close()
    return seen


@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("BareReset", *REUSING)])
def test_environments_have_the_results_of_one_process_each(kind: str, num_workers: int) -> None:
    forget()
    expected = walk(Peer(KINDS[kind](4), start_method="fork"))
    assert same(expected, walk(make(KINDS[kind](4), num_workers=num_workers)))


class TorchGlobal(Walk):
    """Draws from PyTorch's global generator."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        torch.manual_seed(7 if seed is None else seed)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return float(torch.rand(1))


def test_each_environment_has_the_generator_of_torch_to_itself() -> None:
    expected = walk(Peer([TorchGlobal] * 2, start_method="fork"))
    for num_workers in (0, 1):
        assert same(expected, walk(make([TorchGlobal] * 2, num_workers=num_workers)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_end_of_an_episode_is_not_what_the_reset_has_made_of_it(num_workers: int) -> None:
    env = make([SameArrays] * 2, num_workers=num_workers)
    env.reset()
    for _ in range(2):
        env.step([3, 1])
    first, _, _, infos = env.step([3, 1])
    env.step([3, 1])
    assert first.tolist() == [[0, 0], [3, -3]]
    assert infos[0]["terminal_observation"].tolist() == [9, -9]
    assert infos[0]["noted"].tolist() == [18] * 3
    assert infos[1]["noted"].tolist() == [6] * 3
    assert env.reset_infos[0]["noted"].tolist() == [18] * 3
    env.close()


def test_observations_may_be_dicts() -> None:
    ours, peer = make([Dicts] * 2), Peer([Dicts] * 2)
    for env in (ours, peer):
        env.seed(0)
    assert_same(ours.reset(), peer.reset())
    assert_same(ours.step([0, 1])[0], peer.step([0, 1])[0])
    ours.close()
    peer.close()


class Dicts(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {"b": gymnasium.spaces.Box(0, 1, (2,)), "a": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"b": self.np_random.random(2, np.float32), "a": np.int64(2)}, {}

    def step(self, action: Any) -> Any:
        return {"b": np.zeros(2, np.float32), "a": np.int64(action)}, np.float32(0.5), False, False, {}


def test_rewards_keep_their_dtype() -> None:
    env = make([Dicts] * 2)
    env.reset()
    assert env.step([0, 1])[1].dtype == np.float32
    env.close()


def test_seeds_and_options_are_used_once() -> None:
    env = make([Faulty] * 2)
    env.seed(5)
    env.set_options({"armed": True})
    env.reset()
    assert env.get_attr("armed") == [True, True]
    assert env.get_attr("np_random_seed") == [5, 6]
    env.reset()
    assert env.get_attr("armed") == [False, False]
    assert env.get_attr("np_random_seed") == [5, 6]
    env.close()


def test_seeding_without_a_seed_draws_one() -> None:
    env = make()
    first, second = env.seed(None), env.seed(None)
    assert first != second
    assert first[2] == first[0] + 2
    env.close()


def test_attributes_by_index() -> None:
    env = make([lambda: Monitor(cartpole())] * 3)
    env.set_attr("mark", 7, indices=[0, 2])
    assert env.get_attr("mark", indices=[2, 0]) == [7, 7]
    assert env.get_attr("gravity", indices=-1) == [9.8]
    assert env.get_attr("gravity") == [9.8] * 3
    assert env.env_method("get_wrapper_attr", "gravity", indices=range(2)) == [9.8, 9.8]
    assert env.has_attr("gravity")
    assert not env.has_attr("mark")  # environment 1 has it not
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.RecordVideo, indices=1) == [False]
    with pytest.raises(AttributeError):
        env.get_attr("nothing")
    env.close()


def test_frames_are_tiled() -> None:
    env = make([lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")] * 2)
    env.reset()
    assert [image.shape for image in env.get_images()] == [(400, 600, 3)] * 2
    assert env.render().shape == (400, 1200, 3) or env.render().shape == (800, 600, 3)
    env.close()
    env = make()
    with pytest.warns(UserWarning, match="The render mode is None"):
        assert env.get_images() == [None] * 3
    env.close()


@pytest.mark.parametrize("method", [*METHODS, "forkserver"])
def test_every_start_method_works(method: str) -> None:
    env = make(start_method=method)
    assert env.reset().shape == (3, 4)
    env.close()


def test_an_unknown_start_method_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'teleport'"):
        make(start_method="teleport")


def test_wrappers_and_make_vec_env_work() -> None:
    env = make_vec_env("CartPole-v1", 3, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"num_workers": 2})
    for wrapped in (VecNormalize(env), VecFrameStack(env, 2)):
        wrapped.reset()
        wrapped.step([0, 1, 0])
    env.close()
    env.close()
    with_statistics = VecMonitor(make())
    with_statistics.reset()
    with_statistics.step([0, 1, 0])
    with_statistics.close()


def test_monitored_episodes_survive_kills() -> None:
    make_monitored = lambda: Monitor(cartpole())  # noqa: E731
    ours, peer = make([make_monitored] * 3), Peer([make_monitored] * 3)
    for env in (ours, peer):
        env.seed(1)
        env.reset()
    for number, action in enumerate(random_actions(cartpole().action_space, 3, 90)):
        if number in (3, 40):
            kill_worker(ours, number % 2)
        got, expected = ours.step(action), peer.step(action)
        assert_same(got[:3], expected[:3])
        assert_same(without_time(got[3]), without_time(expected[3]))
    assert ours.stats.crashes == 2
    ours.close()
    peer.close()


def test_calls_in_the_wrong_order_are_errors() -> None:
    env = make()
    env.reset()
    with pytest.raises(NoAsyncCallError, match="step_wait: expected a pending step"):
        env.step_wait()
    env.step_async([0, 1, 0])
    with pytest.raises(AlreadyPendingCallError, match=r"call step_wait\(\) first"):
        env.step_async([0, 1, 0])
    assert env.waiting
    env.reset()  # cancels the step
    with pytest.raises(ValueError, match="actions: expected 3, one per environment, got 2"):
        env.step([0, 1])
    assert env.step([0, 1, 0])[0].shape == (3, 4)
    env.step_async([0, 1, 0])
    env.close()
    assert env.closed


@pytest.mark.parametrize("method", METHODS)
def test_errors_of_environments_come_back_and_leave_the_rest_alone(method: str) -> None:
    env = make([Faulty] * 3, start_method=method)
    env.set_options(ARMED)
    env.reset()
    with pytest.raises(TwoArguments):
        env.step([0, fault("two_arguments"), 0])
    with pytest.raises(EnvError, match="SystemExit: 3"):
        env.step([fault("sys_exit"), 0, 0])
    np.testing.assert_array_equal(env.step([0, 0, 0])[0][:, 0], [3, 3, 3])
    env.close()


class _Kills(BaseCallback):
    """Kill the workers in turn, at steps of the training: its speed differs from machine to machine."""

    def _on_step(self) -> bool:
        if self.n_calls % 100 == 0:
            kill_worker(self.training_env, self.n_calls // 100 % 2)
        return True


def _train(vec_env: Any, callback: BaseCallback | None = None) -> Any:
    torch.set_num_threads(1)
    vec_env.seed(0)
    try:
        model = PPO("MlpPolicy", vec_env, seed=0, n_steps=64, n_epochs=2, device="cpu")
        model.learn(4096, callback=callback)
        if callback:
            assert vec_env.stats.crashes >= 4
    finally:
        vec_env.close()
    return torch.cat([parameter.detach().ravel() for parameter in model.policy.parameters()]).numpy()


def test_ppo_learns_the_same_with_kills_and_as_with_stable_baselines_own() -> None:
    expected = _train(Peer([cartpole] * 8))
    np.testing.assert_array_equal(_train(make([cartpole] * 8)), expected)
    np.testing.assert_array_equal(_train(make([cartpole] * 8), _Kills()), expected)


def test_nothing_is_left() -> None:
    env = make([Warehouse] * 2)
    processes = processes_of(env)
    env.close()
    assert not any(process._worker._child.is_alive() for process in processes)
