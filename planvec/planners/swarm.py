"""Swarm: Fractal Monte Carlo (Cerezo, Ballester 2018, arXiv 1803.05049)."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.distance import Features, observation_features
from planvec.planners.plan import Plan, PlanCallback, start_state
from planvec.planners.root_actions import (
    check_action_space,
    draw_actions,
    mean_action,
    tally,
    winner,
)
from planvec.transitions import BatchStepper

__all__ = ["Swarm", "relativize"]

_EPSILON = 1e-12
_STD = 0

def relativize(values):
    spread = values.std()
    if not spread > 0:
        return np.ones(len(values))
    z = (values - values.mean()) / spread
    return np.where(z > 0, 1.0 + np.log1p(np.maximum(z, 0.0)), np.exp(np.minimum(z, 0.0)))


@dataclass(slots=True)
class _Walkers:
    states: NDArray[Any]
    features: Features
    returns: NDArray[np.float64]
    num_steps: NDArray[np.int64]
    root_actions: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    def take(self, rows):
        for f in dataclasses.fields(self):
            v = getattr(self, f.name)
            setattr(self, f.name, v.take(rows) if isinstance(v, Features) else v[rows])

    def comparable(self):
        running = ~self.terminated
        if not running.any():
            return self.returns.copy()
        rate = self.returns[running].sum() / max(self.num_steps[running].sum(), 1)
        left = self.num_steps.max() - self.num_steps
        return self.returns + np.where(running, rate * left, 0.0)

    def dead(self, values):
        running = ~self.terminated
        if not running.any():
            return values < values.mean()
        return self.terminated & (values <= values[running].mean())


@dataclass(frozen=True)
class Swarm:
    num_walkers: int = 64
    horizon: int = 30
    dt: Any = (1, 4)
    reward_scale: float = 1.0
    distance_scale: float = 1.0
    std: int = 0
    dead_all: bool = False

    def plan(self, env, state=None, *, seed=None, callback=None):
        t0 = time.perf_counter()
        rng = np.random.default_rng(seed)
        B = self.num_walkers
        check_action_space(env.action_space)
        states = np.repeat(start_state(env, state), B)
        lo, hi = self.dt if isinstance(self.dt, tuple) else (self.dt, self.dt)
        w = None
        total = 0
        for it in range(self.horizon):
            actions = draw_actions(env.action_space, rng, B)
            dts = rng.integers(lo, hi + 1, B)
            seeds = rng.integers(0, 2**64, B, dtype=np.uint64)
            out = env.step_batch(actions, states if w is None else w.states, dts, seeds=seeds, blocking=True)
            n = out.infos["num_steps"]
            total += int(n.sum())
            f = observation_features(env.observation_space, out.observations, B)
            if w is None:
                w = _Walkers(out.new_states, f, out.rewards, n, actions, out.terminated, out.truncated)
            else:
                w.states, w.features, w.returns = out.new_states, f, w.returns + out.rewards
                w.num_steps = w.num_steps + n
                w.terminated, w.truncated = out.terminated, out.truncated
            values = w.comparable()
            dead = w.terminated if self.dead_all else w.dead(values)
            ok = np.flatnonzero(~dead)
            if len(ok) == 0:
                break
            feats = w.features
            if self.std:
                s = feats.numbers[ok].std(axis=0)
                feats = Features(feats.numbers / np.where(s > 0, s, 1), feats.labels)
            d = feats.distances(ok[rng.integers(len(ok), size=B)])
            vr = np.zeros(B)
            vr[ok] = relativize(d[ok]) ** self.distance_scale * relativize(values[ok]) ** self.reward_scale
            k = ok[rng.integers(len(ok), size=B)]
            p = (vr[k] - vr) / np.maximum(vr, _EPSILON)
            clone = dead | (p > rng.random(B))
            src = np.where(clone, k, np.arange(B))
            w.take(src)
            if (w.terminated | w.truncated).all():
                break
        values = w.comparable()
        dist, counts, means = tally(env.action_space, w.root_actions, values)
        if isinstance(env.action_space, spaces.Box):
            a = mean_action(env.action_space, w.root_actions)
        else:
            a = dist[winner(counts, means)]
        return Plan(a, dist, counts, means, None, None, float(values.max()), it + 1, total, time.perf_counter() - t0, "")
