"""A PPO loop in the style of CleanRL, over Gymnasium's interface. Needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical
from vectors import kill_worker

from planvec.vector import AsyncVectorEnv

NUM_ENVS, NUM_STEPS, NUM_UPDATES, NUM_EPOCHS, NUM_PARTS = 8, 128, 16, 4, 4
DISCOUNT, TRACE, CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.99, 0.95, 0.2, 0.5, 0.01


def make() -> Any:
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))


def train(envs: Any, before_step: Callable[[int], None]) -> tuple[bytes, list[float]]:
    """Train an agent. Returns its parameters, and the returns of the episodes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    shape = NUM_STEPS, NUM_ENVS
    observations = torch.zeros((*shape, 4))
    actions, log_probs, rewards, ends, values = (torch.zeros(shape) for _ in range(5))
    returns: list[float] = []
    array, _ = envs.reset(seed=1)
    observation, end = torch.as_tensor(array), torch.zeros(NUM_ENVS)
    for update in range(NUM_UPDATES):
        for step in range(NUM_STEPS):
            before_step(update * NUM_STEPS + step)
            with torch.no_grad():
                policy = Categorical(logits=agent.actor(observation))
                action = policy.sample()
                values[step] = agent.critic(observation).flatten()
            observations[step], ends[step], actions[step] = observation, end, action
            log_probs[step] = policy.log_prob(action)
            array, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward)
            observation, end = torch.as_tensor(array), torch.as_tensor(terminated | truncated).float()
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        with torch.no_grad():
            next_value, advantage = agent.critic(observation).flatten(), torch.zeros(NUM_ENVS)
            advantages, next_end = torch.zeros(shape), end
            for step in reversed(range(NUM_STEPS)):
                delta = rewards[step] + DISCOUNT * next_value * (1 - next_end) - values[step]
                advantage = delta + DISCOUNT * TRACE * (1 - next_end) * advantage
                advantages[step], next_value, next_end = advantage, values[step], ends[step]
        data = [
            tensor.flatten(0, 1)
            for tensor in (observations, actions, log_probs, advantages, advantages + values)
        ]
        for _ in range(NUM_EPOCHS):
            for part in torch.randperm(NUM_STEPS * NUM_ENVS).chunk(NUM_PARTS):
                obs, action, old, gain, target = (tensor[part] for tensor in data)
                policy = Categorical(logits=agent.actor(obs))
                ratio = (policy.log_prob(action) - old).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = torch.max(-gain * ratio, -gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                loss = loss + VALUE_WEIGHT * (agent.critic(obs).flatten() - target).square().mean() / 2
                loss = loss - ENTROPY_WEIGHT * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    envs.close()
    return b"".join(parameter.detach().numpy().tobytes() for parameter in agent.parameters()), returns


@pytest.fixture(scope="module")
def expected() -> tuple[bytes, list[float]]:
    return train(gymnasium.vector.SyncVectorEnv([make] * NUM_ENVS), lambda step: None)


@pytest.mark.parametrize(("num_workers", "kills"), [(0, ()), (2, ()), (2, (300, 700, 1100, 1500, 1900))])
def test_ppo_learns_the_same_network_as_with_gymnasium(
    num_workers: int, kills: Sequence[int], expected: tuple[bytes, list[float]]
) -> None:
    envs = AsyncVectorEnv([make] * NUM_ENVS, num_workers=num_workers)

    def kill(step: int) -> None:
        if step in kills:
            kill_worker(envs, kills.index(step) % 2)

    network, returns = train(envs, kill)
    assert envs.stats.crashes == len(kills)
    assert network == expected[0]
    assert returns == expected[1]


def test_it_learns(expected: tuple[bytes, list[float]]) -> None:
    returns = expected[1]
    assert np.mean(returns[-20:]) > 3 * np.mean(returns[:20])
