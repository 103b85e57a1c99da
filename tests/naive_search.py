"""Sequential tree search as in the papers: one simulation after the other, with nodes as objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import planvec

MASK = 2**64 - 1


def mix(seed: int, number: int) -> int:
    """Return a number of SplitMix64, written as in its paper."""
    z = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return (z ^ (z >> 31)) >> 2


class Outcome:
    def __init__(self, node: Node, reward: float, discount: float, key: Any) -> None:
        self.node, self.reward, self.discount, self.key, self.count = node, reward, discount, key, 0


class Node:
    """Its values are returns of player 0, whoever is to move."""

    def __init__(self, number: int, state: Any, ended: bool, num_actions: int, start: int) -> None:
        self.number, self.state, self.ended, self.start = number, state, ended, start
        names = getattr(state.dtype, "names", None) or ()
        self.sign = -1 if "current_player" in names and state["current_player"] == 1 else 1
        mask = state["action_mask"] if "action_mask" in names else np.ones(num_actions, bool)
        self.legal = np.flatnonzero(mask).tolist()
        self.own_value = self.total = 0.0
        self.num_returns = 0
        self.visits = [0] * num_actions
        self.sums = [0.0] * num_actions
        self.means = [0.0] * num_actions
        self.value = 0.0
        self.samples = [0] * num_actions
        self.outcomes: list[list[Outcome]] = [[] for _ in range(num_actions)]
        self.priors = [1 / max(1, len(self.legal))] * num_actions


class NaiveSearch:
    """The reference for `MCTS` with `batch_size=1` and means of returns: every node has to be equal."""

    def __init__(self, config: planvec.MCTS, env: Any, state: Any, seed: int) -> None:
        self.config, self.env = config, env
        self.generator = np.random.default_rng(seed)
        self.seed = int(self.generator.integers(2**62))
        self.num_actions = int(env.action_space.n)
        self.nodes: list[Node] = []
        self.lowest, self.highest = math.inf, -math.inf
        self.num_draws = 0
        self.root = self.new_node(state, False)
        if config.value_fn is not None:
            self.evaluate(self.root, env.observe(np.array([state])))

    def new_node(self, state: Any, ended: bool) -> Node:
        number = len(self.nodes)
        start = mix(self.seed, -number - 2) % self.num_actions
        node = Node(number, state, ended, self.num_actions, start)
        self.nodes.append(node)
        return node

    def evaluate(self, node: Node, observations: Any) -> None:
        assert self.config.value_fn is not None
        node.own_value = node.value = node.sign * float(self.config.value_fn(observations)[0])
        node.num_returns = 1

    def order(self, node: Node) -> list[int]:
        order = [(node.start + i) % self.num_actions for i in range(self.num_actions)]
        return [action for action in order if action in node.legal]

    def scale(self, node: Node) -> float:
        if not isinstance(self.config.value_scale, str):
            return self.config.value_scale
        tried = [mean for mean, visits in zip(node.means, node.visits, strict=True) if visits]
        if self.config.value_scale == "node" and tried and max(tried) > min(tried):
            return max(tried) - min(tried)
        return self.highest - self.lowest if self.highest > self.lowest else 1.0

    def choose(self, node: Node) -> int:
        total = sum(node.visits)
        scores = {}
        for action in self.order(node):
            visits = node.visits[action]
            if self.config.selection == "uct":
                if not visits:
                    return action
                factor = self.config.exploration * self.scale(node)
                value = node.sign * node.means[action]
                scores[action] = value + factor * math.sqrt(2.0 * math.log(total) / visits)
            else:
                value = node.sign * (node.means[action] if visits else node.value)
                rate = math.log((total + 1 + 19652.0 + 1.0) / 19652.0) + 1.25
                factor = self.config.exploration * self.scale(node) * (rate * math.sqrt(total + 1))
                scores[action] = value + factor * node.priors[action] / (1.0 + visits)
        return max(scores, key=lambda action: scores[action])

    def draw(self, outcomes: list[Outcome]) -> Outcome:
        self.num_draws += 1
        remaining = mix(self.seed, self.num_draws) % sum(outcome.count for outcome in outcomes)
        for outcome in reversed(outcomes):
            if remaining < outcome.count:
                return outcome
            remaining -= outcome.count
        raise AssertionError

    def step(self, node: Node, action: int) -> tuple[Outcome, bool, Any]:
        """Return the outcome, whether it is new, and the observations."""
        seeds = None
        if self.env.is_stochastic:
            seeds = self.generator.integers(0, 2**64, 1, dtype=np.uint64)
        out = self.env.step_batch([action], np.array([node.state]), seeds=seeds, blocking=True)
        names = [name for name in out.new_states.dtype.names if name != "generator"]
        reward = float(out.rewards[0])
        key = (*(out.new_states[name].tobytes() for name in names), reward)
        for outcome in node.outcomes[action]:
            if outcome.key == key:
                return outcome, False, out.observations
        ended = bool(out.terminated[0] or out.truncated[0])
        discount = float(self.config.discount) ** int(out.infos["num_steps"][0])
        outcome = Outcome(self.new_node(out.new_states[0], ended), reward, discount, key)
        node.outcomes[action].append(outcome)
        return outcome, True, out.observations

    def simulate(self) -> None:
        node, path, is_last_new = self.root, [], False
        while not node.ended and len(path) < self.config.max_depth:
            action = self.choose(node)
            factor, exponent = self.config.outcome_widening
            allowed = max(1.0, math.floor(factor * float(node.visits[action] + 1) ** exponent))
            outcomes = node.outcomes[action]
            if outcomes and (not self.env.is_stochastic or node.samples[action] >= allowed):
                outcome = self.draw(outcomes) if self.env.is_stochastic else outcomes[0]
                path.append((node, action, outcome))
                node = outcome.node
                continue
            node.samples[action] += 1
            outcome, is_new, observations = self.step(node, action)
            outcome.count += 1
            path.append((node, action, outcome))
            node = outcome.node
            is_last_new = is_new
            if is_new:
                if not node.ended:
                    self.evaluate_leaf(node, observations)
                node.num_returns = 1
                break
        value = node.own_value
        if self.config.rollout_steps and not (is_last_new or node.ended):  # at the greatest depth
            value = self.roll_out(node)
        for node, action, outcome in reversed(path):
            value = outcome.reward + outcome.discount * value
            node.visits[action] += 1
            node.means[action] += (value - node.means[action]) / node.visits[action]
            node.num_returns += 1
            node.value += (value - node.value) / node.num_returns
            own = node.sign * value
            self.lowest, self.highest = min(self.lowest, own), max(self.highest, own)

    def evaluate_leaf(self, node: Node, observations: Any) -> None:
        if self.config.value_fn is not None:
            return self.evaluate(node, observations)
        if self.config.rollout_steps:
            node.own_value = node.value = self.roll_out(node)
        return None

    def roll_out(self, node: Node) -> float:
        seed = int(self.generator.integers(2**63))
        seeds = None
        if self.env.is_stochastic:
            seeds = self.generator.integers(0, 2**64, 1, dtype=np.uint64)
        out = self.env.rollout_batch(
            np.array([node.state]),
            self.config.rollout_steps,
            action_seed=seed,
            seeds=seeds,
            discount=self.config.discount,
            blocking=True,
        )
        return float(out.returns[0])
