"""Environments that hold objects of PyTorch, or graphs of networkx. Needs the package torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from nasty import Nasty
from walks import shuffled_steps

import planvec

torch.set_num_threads(1)  # threads of several processes would wait for each other


class Zeros(Nasty):
    def begin(self) -> None:
        self.s = torch.zeros(3)

    def extra(self, action: int) -> float:
        self.s[action % 3] += action
        return float(self.s.sum())


class Views(Nasty):
    """Holds tensors that lie in one memory."""

    def begin(self) -> None:
        self.s = torch.zeros(6)
        self.head, self.turned = self.s[:3], self.s.view(2, 3).t()

    def extra(self, action: int) -> float:
        self.s[action % 3] += action
        return float(self.head.sum() + self.turned[0, 0])


class Kinds(Nasty):
    def begin(self) -> None:
        self.half, self.bits = torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bool)
        self.conjugate = torch.ones(2, dtype=torch.complex64).conj()
        self.negative = self.conjugate.imag
        self.empty, self.scalar, self.spread = torch.zeros(0), torch.tensor(1.5), torch.ones(1).expand(3)
        self.sparse, self.normal = torch.eye(3).to_sparse(), torch.distributions.Normal(0.0, 1.0)
        self.kind, self.device, self.size = torch.float32, torch.device("cpu"), torch.Size([1])

    def extra(self, action: int) -> float:
        self.half += action
        self.bits[action % 2] ^= True
        self.scalar += action
        number = self.bits.sum() + self.scalar + self.spread.sum() + self.negative.sum()
        return float(self.half.sum().float() + number + self.conjugate.real.sum())


class Network(Nasty):
    """Holds networks that share a parameter, and one that keeps statistics."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        self.other = torch.nn.Linear(2, 4)
        self.other.weight = self.net[0].weight
        self.norm, self.memory = torch.nn.BatchNorm1d(2), torch.nn.LSTM(2, 2)

    def begin(self) -> None:
        self.norm.reset_running_stats()
        with torch.no_grad():
            self.net[0].weight.fill_(0.5)
        self.hidden: Any = None

    def extra(self, action: int) -> float:
        with torch.no_grad():
            self.net[0].weight += 0.1 * action
            out, self.hidden = self.memory(torch.ones(1, 1, 2) * action, self.hidden)
            self.norm(torch.arange(6.0).reshape(3, 2) * action)
            rest = self.net(torch.ones(2)).sum() + self.norm.running_mean.sum()
            return float(self.other(torch.ones(2)).sum() + out.sum() + rest)


class Learns(Nasty):
    """Trains a network."""

    def __init__(self) -> None:
        self.net = torch.nn.Linear(2, 1)

    def begin(self) -> None:
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.fill_(0.5)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.net.zero_grad()

    def extra(self, action: int) -> float:
        loss = (self.net(torch.tensor([float(action), 1.0])) ** 2).sum()
        if self.time % 2:  # gradients add up over two steps
            self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


class Draws(Nasty):
    def begin(self) -> None:
        self.generator = torch.Generator().manual_seed(int(self.np_random.integers(1000)))

    def extra(self, action: int) -> float:
        return float(torch.rand(1, generator=self.generator))


class Graphs(Nasty):
    def begin(self) -> None:
        self.grid, self.tree = networkx.grid_2d_graph(3, 3), networkx.DiGraph([(1, 2), (2, 3)])

    def extra(self, action: int) -> float:
        edges = list(self.grid.edges)
        if action and len(edges) > 5:
            self.grid.remove_edge(*edges[action])
        else:
            self.grid.add_edge((0, 0), (action, self.time % 3))
        self.tree.add_edge(action, self.time, weight=1)
        return float(self.grid.number_of_edges() + len(list(self.tree.successors(action))))


EXACT = [Zeros, Views, Kinds, Network, Learns, Draws, Graphs]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("make", EXACT)
def test_it_is_restored_exactly(make: Callable[[], Any], num_workers: int) -> None:
    with planvec.make(make, num_workers=num_workers) as env:
        out, expected, states, actions = shuffled_steps(env, make, seed=7, num_steps=60)
        assert out.rewards.tolist() == [float(outcome[1]) for outcome in expected]
        again = env.step_batch(actions, np.array(states, env.state_dtype))
        assert [bytes(state) for state in again.new_states[:-1]] == [bytes(state) for state in states[1:]]
        env.check_states(out.new_states)


def test_a_generator_follows_the_seeds_of_a_batch() -> None:
    with planvec.PlanEnv(Draws) as env:
        rewards = env.step_batch([0] * 4, seeds=[1, 2, 1, 2]).rewards.tolist()
        assert rewards[:2] == rewards[2:]
        assert rewards[0] != rewards[1]


class DrawsGlobally(Nasty):
    def extra(self, action: int) -> float:
        return float(torch.rand(1)) if self.time > 300 else float(torch.rand(1) * 0)


class SharesWithNumpy(Nasty):
    def begin(self) -> None:
        self.array = np.zeros(3)
        self.tensor = torch.from_numpy(self.array)

    def extra(self, action: int) -> float:
        self.array[0] += action
        return float(self.tensor[0]) if self.time > 300 else 0.0


class KeepsTheRecord(Nasty):
    def begin(self) -> None:
        self.loss = (torch.ones(2, requires_grad=True) * 2).sum()

    def extra(self, action: int) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (DrawsGlobally, "global generator of `torch`"),
        (SharesWithNumpy, r"\(arrays that share memory\)"),
        (KeepsTheRecord, r"record of its calculation, which a copy would lose. Keep tensor.detach\(\)"),
    ],
)
def test_it_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        planvec.PlanEnv(make)


@pytest.mark.timeout(300)
def test_the_example_of_alphazero_learns_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """For a minute in all; how well it plays then depends on the machine."""
    script = Path(__file__).parent.parent / "examples" / "alphazero.py"
    options = ["--match-games", "20", "--opponent-simulations", "20", "--checkpoint", "run.pt"]
    texts = []
    for minutes in ("0.5", "0.8"):
        command = [sys.executable, str(script), "--minutes", minutes, *options, "--curve", "run.json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert "goes on after" in texts[1]
    untrained, first, second = json.loads((tmp_path / "run.json").read_text())
    assert untrained["games"] == 0
    assert 0 < first["games"] < second["games"]
    for name in ("its start", "MCTS with 20 random rollouts"):
        assert sum(first[name]) == sum(second[name]) == 20
