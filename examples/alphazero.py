"""Learn connect four by self-play, as AlphaZero does: a search improves the network that guides it.

    pip install "planvec[openspiel,torch]"
    python examples/alphazero.py                        # one minute: what CI runs
    python examples/alphazero.py --minutes 60 --checkpoint run.pt --curve run.json
    python examples/alphazero.py --minutes 90 --checkpoint run.pt    # goes on up to 90 minutes

All games are played at once: `plan_batch` searches all of their positions, and the network evaluates the
new nodes of all searches in one call. At the end, every `--every` minutes, and with `--curve` at the start,
the network plays 200 games against itself as it was at the start and against OpenSpiel's MCTS with random
rollouts, half of them with each colour, from openings of two random moves.

Sources: Silver et al. 2018 (AlphaZero); the mean of the result and of the value of the search as the target
of the value: Willemsen et al. 2020, "Value targets in off-policy AlphaZero".
"""

import argparse
import copy
import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pyspiel
import torch
from torch import nn
from torch.nn import functional

import planvec

NUM_ACTIONS = 7
BOARD = (3, 6, 7)  # planes: of the player to move, of the other one, and empty
NUM_EARLY = 12  # moves of a game that are drawn by the visits of the search
# The policy learns the visits of its own games, and is sure of them. Softer priors let a search of few
# simulations see the moves that others would make (Leela Chess Zero's "policy softmax temperature").
TEMPERATURE = 2.0


def boards_of(observations: np.ndarray) -> np.ndarray:
    """Return boards `[B, 3, 6, 7]` as the player to move sees them; OpenSpiel has those of player 0 first."""
    boards = observations.reshape(-1, *BOARD)
    is_second = boards[:, :2].sum(axis=(1, 2, 3)) % 2 == 1
    return np.where(is_second[:, None, None, None], boards[:, [1, 0, 2]], boards)


class Network(nn.Module):
    """A residual network with a value in [-1, 1] and a policy, for the player to move."""

    def __init__(self, channels: int, num_blocks: int) -> None:
        super().__init__()
        convolution = [nn.Conv2d(3, channels, 3, padding=1)]
        convolution += [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2 * num_blocks)]
        self.convolutions = nn.ModuleList(convolution)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in convolution])
        self.heads = nn.Conv2d(channels, 16, 1)
        self.hidden = nn.Linear(16 * 42, 128)
        self.out = nn.Linear(128, 1 + NUM_ACTIONS)

    def forward(self, boards: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return values `[B]` and logits `[B, 7]` of boards `[B, 3, 6, 7]`."""
        x = functional.relu(self.norms[0](self.convolutions[0](boards)))
        for block in range(1, len(self.convolutions), 2):
            inner = functional.relu(self.norms[block](self.convolutions[block](x)))
            x = functional.relu(x + self.norms[block + 1](self.convolutions[block + 1](inner)))
        out = self.out(functional.relu(self.hidden(functional.relu(self.heads(x)).flatten(1))))
        return torch.tanh(out[:, 0]), out[:, 1:]


class Evaluator:
    """What the search calls: values and priors for observations, on the device of the network."""

    def __init__(self, network: Network, device: str) -> None:
        self.network, self.device = network, device

    @torch.inference_mode()
    def __call__(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.network.eval()
        boards = torch.from_numpy(boards_of(observations)).to(self.device)
        values, logits = self.network(boards)
        return values.cpu().numpy(), torch.softmax(logits / TEMPERATURE, dim=1).cpu().numpy()


class Buffer:
    """The latest positions with the targets of the network."""

    def __init__(self, capacity: int) -> None:
        self.boards = np.zeros((capacity, *BOARD), np.float32)
        self.policies = np.zeros((capacity, NUM_ACTIONS), np.float32)
        self.values = np.zeros(capacity, np.float32)
        self.num_added = 0

    def __len__(self) -> int:
        return min(self.num_added, len(self.values))

    def add(self, boards: np.ndarray, policies: np.ndarray, values: np.ndarray) -> None:
        """Add positions; the oldest ones make room."""
        rows = (self.num_added + np.arange(len(values))) % len(self.values)
        self.boards[rows], self.policies[rows], self.values[rows] = boards, policies, values
        self.num_added += len(values)

    def sample(self, generator: np.random.Generator, num_rows: int) -> tuple[np.ndarray, ...]:
        """Draw positions, half of them mirrored."""
        rows = generator.integers(len(self), size=num_rows)
        boards, policies = self.boards[rows], self.policies[rows]
        mirrored = generator.random(num_rows) < 0.5
        boards[mirrored], policies[mirrored] = boards[mirrored, ..., ::-1], policies[mirrored, ::-1]
        return boards, policies, self.values[rows]


def searcher(evaluator: Evaluator, num_simulations: int, **options: object) -> planvec.MCTS:
    """Return the search that plays: PUCT in units of the return, which is -1, 0 or 1."""
    return planvec.MCTS(
        num_simulations=num_simulations,
        batch_size=4,
        selection="puct",
        evaluate_fn=evaluator,
        exploration=1.0,
        value_scale=1.0,
        **options,
    )


def play_games(env, evaluator, num_games, num_simulations, generator):
    """Play games of the network against itself. Returns the boards, policies and values of all positions."""
    # They begin with up to 4 random moves, so that the network knows what bad moves lead to.
    planner = searcher(evaluator, num_simulations, root_noise=(1.0, 0.25))
    openings = [
        generator.integers(NUM_ACTIONS, size=count) for count in generator.integers(5, size=num_games)
    ]
    states = np.array(
        [env.reset(seed=0, options={"history": opening.tolist()}).state for opening in openings]
    )
    alive, plans = np.arange(num_games), [None] * num_games
    moves = [[] for _ in range(num_games)]  # of each game: player, board, policy, value of the search
    results = np.zeros(num_games)  # for player 0
    while len(alive):
        seeds = generator.integers(2**62, size=len(alive))
        previous = [plans[game] for game in alive]
        boards = boards_of(env.observe(states[alive]))
        actions = np.zeros(len(alive), np.int64)
        for row, plan in enumerate(planner.plan_batch(env, states[alive], seeds=seeds, previous=previous)):
            game = alive[row]
            policy = plan.visit_counts / plan.visit_counts.sum()
            moves[game].append((states["current_player"][game], boards[row], policy, plan.value))
            is_early = len(moves[game]) <= NUM_EARLY  # later it takes the best move
            actions[row] = generator.choice(NUM_ACTIONS, p=policy) if is_early else plan.action
            plans[game] = dataclasses.replace(
                plan, action=actions[row]
            )  # whose tree the next one goes on with
        out = env.step_batch(actions, states[alive])
        states[alive] = out.new_states
        results[alive] += out.rewards
        alive = alive[~(out.terminated | out.truncated)]
    players, boards, policies, values = zip(*[move for game in moves for move in game], strict=True)
    outcomes = np.repeat(results, list(map(len, moves))) * np.where(np.array(players) == 0, 1.0, -1.0)
    return np.array(boards), np.array(policies), (outcomes + np.array(values)) / 2


def train(network, optimizer, buffer, num_updates, batch_size, device, generator):
    """Fit the network to positions of the buffer. Returns the mean losses of value and policy."""
    network.train()
    losses = []
    for _ in range(num_updates):
        arrays = [torch.from_numpy(array).to(device) for array in buffer.sample(generator, batch_size)]
        boards, policies, targets = arrays
        values, logits = network(boards)
        value_loss = functional.mse_loss(values, targets)
        policy_loss = -(policies * functional.log_softmax(logits, dim=1)).sum(1).mean()
        optimizer.zero_grad()
        (value_loss + policy_loss).backward()
        optimizer.step()
        losses.append((value_loss.item(), policy_loss.item()))
    return np.mean(losses, axis=0)


class RandomRollouts:
    """OpenSpiel's MCTS with random rollouts."""

    def __init__(self, num_simulations: int, seed: int) -> None:
        self.game = pyspiel.load_game("connect_four")
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        self.bot = pyspiel.MCTSBot(self.game, evaluator, 1.4, num_simulations, 100, True, seed, False)

    def moves(self, histories: list[list[int]], states: np.ndarray) -> list[int]:
        """Return a move for each game."""
        moves = []
        for history in histories:
            state = self.game.new_initial_state()
            for action in history:
                state.apply_action(action)
            moves.append(self.bot.step(state))
        return moves


class Player:
    """A network with its search, without noise."""

    def __init__(self, env, evaluator: Evaluator, num_simulations: int, seed: int) -> None:
        self.env, self.generator = env, np.random.default_rng(seed)
        self.planner = searcher(evaluator, num_simulations)

    def moves(self, histories: list[list[int]], states: np.ndarray) -> list[int]:
        """Return a move for each game."""
        seeds = self.generator.integers(2**62, size=len(states))
        return [int(plan.action) for plan in self.planner.plan_batch(self.env, states, seeds=seeds)]


def match(env, player, opponent, num_games, seed):
    """Play games, half of them with each colour. Returns how many the player wins, draws and loses."""
    generator = np.random.default_rng(seed)
    openings = generator.integers(NUM_ACTIONS, size=(num_games // 2, 2)).tolist() * 2
    histories = [list(opening) for opening in openings]
    colour = np.repeat([0, 1], num_games // 2)  # of the player, in each game
    states = np.array([env.reset(seed=0, options={"history": history}).state for history in histories])
    alive, results = np.arange(len(histories)), np.zeros(len(histories))  # results: for player 0
    while len(alive):
        is_own = states["current_player"][alive] == colour[alive]
        for side, games in ((player, alive[is_own]), (opponent, alive[~is_own])):
            if not len(games):
                continue
            moves = side.moves([histories[game] for game in games], states[games])
            out = env.step_batch(np.array(moves), states[games])
            states[games] = out.new_states
            results[games] += out.rewards
            for game, move in zip(games, moves, strict=True):
                histories[game].append(move)
            alive = np.setdiff1d(alive, games[out.terminated | out.truncated])
    scores = np.where(colour == 0, results, -results)
    return [int((scores == result).sum()) for result in (1, 0, -1)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="time to learn, without matches")
    parser.add_argument("--every", type=float, default=10.0, help="minutes between two matches")
    parser.add_argument("--games", type=int, default=64, help="games that are played at once")
    parser.add_argument("--simulations", type=int, default=48, help="simulations a move")
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--match-games", type=int, default=200)
    parser.add_argument("--opponent-simulations", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, help="file that is read if it exists, and written")
    parser.add_argument("--curve", type=Path, help="JSON file with the results of all matches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    opponent = f"MCTS with {arguments.opponent_simulations} random rollouts"
    torch.manual_seed(arguments.seed)
    network = Network(arguments.channels, arguments.blocks).to(arguments.device)
    start = copy.deepcopy(network)  # as it was before it learned
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-4)
    buffer, generator = Buffer(60_000), np.random.default_rng(arguments.seed)
    done = {"seconds": 0.0, "games": 0, "matches": []}
    if arguments.checkpoint is not None and arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint, map_location="cpu", weights_only=False)
        network.load_state_dict(saved["network"])
        start.load_state_dict(saved["start"])
        optimizer.load_state_dict(saved["optimizer"])
        buffer.__dict__.update(saved["buffer"])
        generator.bit_generator.state = saved["generator"]
        torch.set_rng_state(saved["torch"])
        done = saved["done"]
        print(f"goes on after {done['seconds'] / 60:.1f} minutes and {done['games']} games")

    def save() -> None:
        """Write a checkpoint under another name first: an interrupted run keeps the last one."""
        if arguments.checkpoint is None:
            return
        partial = arguments.checkpoint.with_suffix(".partial")
        torch.save(
            {
                "network": network.state_dict(),
                "start": start.state_dict(),
                "optimizer": optimizer.state_dict(),
                "buffer": buffer.__dict__,
                "generator": generator.bit_generator.state,
                "torch": torch.get_rng_state(),
                "done": done,
            },
            partial,
        )
        partial.replace(arguments.checkpoint)

    def compare(env) -> None:
        """Play the matches, and print and keep their results."""
        num_games, seed = arguments.match_games, arguments.seed
        player = Player(env, Evaluator(network, arguments.device), arguments.simulations, seed)
        others = {
            "its start": Player(env, Evaluator(start, arguments.device), arguments.simulations, seed + 1),
            opponent: RandomRollouts(arguments.opponent_simulations, seed + 2),
        }
        results = {name: match(env, player, other, num_games, seed) for name, other in others.items()}
        done["matches"].append({"minutes": done["seconds"] / 60, "games": done["games"], **results})
        for name, (wins, draws, losses) in results.items():
            print(f"  against {name}: {wins} won, {draws} drawn, {losses} lost", flush=True)
        if arguments.curve is not None:
            arguments.curve.write_text(json.dumps(done["matches"], indent=1) + "\n")

    with planvec.make("OpenSpiel/connect_four", num_workers=0, info_keys=()) as env:
        evaluator = Evaluator(network, arguments.device)
        if arguments.curve is not None and not done["matches"]:
            compare(env)
        while done["seconds"] < 60 * arguments.minutes:
            began = time.perf_counter()
            positions = play_games(env, evaluator, arguments.games, arguments.simulations, generator)
            buffer.add(*positions)
            played = time.perf_counter() - began
            num_updates = max(1, 4 * len(positions[2]) // 256)  # each position is learned from 4 times
            losses = train(network, optimizer, buffer, num_updates, 256, arguments.device, generator)
            took = time.perf_counter() - began
            before, done["seconds"] = done["seconds"], done["seconds"] + took
            done["games"] += arguments.games
            print(
                f"{done['seconds'] / 60:5.1f} min, {done['games']:6d} games, value loss {losses[0]:.3f}, "
                f"policy {losses[1]:.3f}, {arguments.games / took:.1f} games/s ({played / took:.0%} play)",
                flush=True,
            )
            if before // (60 * arguments.every) < done["seconds"] // (60 * arguments.every):
                compare(env)
            save()
        # unless it has just played them; a checkpoint that goes on may meet another opponent
        latest = done["matches"][-1] if done["matches"] else {}
        if latest.get("games") != done["games"] or opponent not in latest:
            compare(env)
        save()


if __name__ == "__main__":
    main()
