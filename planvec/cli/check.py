"""Defines `planvec check`, `planvec bench`, `planvec envs` and `planvec replay`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planvec.cli.environments import add_backend, add_environment, codec_of, env_source, given_env, workers_of
from planvec.cli.parser import COUNT, FAILED, Parser, UsageError, add_flag, add_json, add_option, integer


def add_check(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec check`."""
    parser = commands.add_parser(
        "check",
        help="check whether an environment is saved and restored exactly",
        description="Take random steps, restore every state in another instance and in another process, step "
        "several branches from some of the states, and compare every bit with the environment stepped "
        "without planvec. The exit status is 0 only if everything is exact.",
    )
    add_environment(parser)
    add_option(parser, "--steps", "N", COUNT, "number of random steps", 500)
    add_option(parser, "--restores", "N", COUNT, "number of states from which to step several branches", 20)
    add_option(parser, "--children", "N", COUNT, "number of branches from each of these states", 8)
    text = "seed of the resets, the actions and the order of the states"
    add_option(parser, "--seed", "N", integer(0, 2**32 - 1), text, 0)
    add_option(parser, "--info-keys", "KEY", str, "the info keys to compare (default: all)", nargs="*")
    add_backend(parser)
    add_json(parser)
    parser.set_defaults(run=_run_check)


def _run_check(arguments: argparse.Namespace) -> int:
    from planvec.checking import check_env

    source, make_kwargs = given_env(arguments)
    report = check_env(
        source,
        num_steps=arguments.steps,
        seed=arguments.seed,
        num_restores=arguments.restores,
        num_children=arguments.children,
        codec=codec_of(arguments.codec),
        info_keys=arguments.info_keys,
        env_kwargs=make_kwargs,
        **workers_of(arguments),
    )
    report = dataclasses.replace(report, name=arguments.env_id)
    print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0 if report.exact else FAILED


# -- Defines `planvec bench ENV_ID`, which measures how many workers pay on this machine ---------------------


def add_bench(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec bench`."""
    parser = commands.add_parser(
        "bench",
        help="measure how many workers and rows pay on this machine",
        description="Step batches of random actions in this process, with workers, with a compiled kernel "
        "if there is one, and in as many independent processes, all in turn. Print environment steps per "
        "second, what is fastest, and why.",
    )
    add_environment(parser)
    add_option(parser, "--rows", "N", COUNT, "rows per call", [1, 16, 256, 4096], nargs="+")
    text = "numbers of workers (default: 1, 2, 4, ... up to the number of cores)"
    add_option(parser, "--workers", "N", COUNT, text, nargs="+")
    add_option(parser, "--seconds", "S", float, "time of all measurements", 20.0)
    add_option(parser, "--plot", "FILE", Path, "also draw the measurements, as a PNG file")
    add_json(parser)
    parser.set_defaults(run=_run_bench)


def _run_bench(arguments: argparse.Namespace) -> int:
    from planvec.checking import measure_throughput

    source, env_kwargs = given_env(arguments)
    throughput = measure_throughput(
        source,
        rows=arguments.rows,
        num_workers=arguments.workers,
        seconds=arguments.seconds,
        codec=codec_of(arguments.codec),
        env_kwargs=env_kwargs,
    )
    print(json.dumps(throughput.to_dict()) if arguments.json else f"{arguments.env_id}\n{throughput}")
    if arguments.plot is not None:
        from planvec.plots import plot_throughput

        axes: Any = plot_throughput(throughput)
        axes.set_title(arguments.env_id)
        axes.figure.savefig(arguments.plot, dpi=120)
    return 0


# -- Defines `planvec envs`, which lists the families of environments and what saving their states costs -----


def add_envs(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec envs`."""
    parser = commands.add_parser(
        "envs",
        help="list the families of environments, how their states are saved, and what that costs",
        description="List the families of environments that were checked: how their states are saved, "
        "whether they are restored exactly, the size of a state, and how long saving and restoring take.",
    )
    add_flag(parser, "--json", "print the table as one JSON object")
    parser.set_defaults(run=_run_envs)


def _run_envs(arguments: argparse.Namespace) -> int:
    from planvec.codecs import measured, text_table

    print(json.dumps(measured()) if arguments.json else text_table())
    return 0


# -- Defines `planvec replay RUN`, which plays trajectories again and compares every bit ---------------------


def add_replay(commands: argparse._SubParsersAction[Parser], argv: Sequence[str]) -> None:
    """Add the parser of `planvec replay`."""
    parser = commands.add_parser(
        "replay",
        help="play a run again and compare every bit",
        description="Reset the environment of a run with its seed, take the actions of each trajectory, and "
        "compare states, observations, rewards and flags with the file. The exit status is 1 if any bit "
        "differs.",
    )
    parser.add_argument("directory", type=Path, metavar="RUN", help="the directory of a run, or of a record")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="if every bit is the same, write a record of the run: settings, seeds, actions, rewards, and "
        "digests of observations. It is small, and is played again like a run",
    )
    add_json(parser)
    parser.set_defaults(run=_run_replay)


def _run_replay(arguments: argparse.Namespace) -> int:
    from planvec.envs import PlanEnv
    from planvec.runs import RunConfig, RunFiles, read_trajectory, record_of, replay, write_record

    files = RunFiles(arguments.directory)
    if not files.config.is_file():
        path = files.directory
        got = f"{path}, which {'has none' if path.is_dir() else 'does not exist'}"
        if path.is_file():
            is_part = RunFiles(path.parent).config.is_file()
            got = f"the file {path}" + f"; pass its directory: planvec replay {path.parent}" * is_part
        raise UsageError(f"RUN: expected the directory of a run, with a {files.config.name}, got {got}")
    record = arguments.record
    if record is not None and RunFiles(record).config.exists():
        raise UsageError(
            f"--record: expected another directory, without a run or a record, got {record}; remove it first"
        )
    config = RunConfig.read(files.config)
    paths = files.trajectories()
    if not paths:
        raise UsageError(
            f"RUN: expected a directory with trajectories, got {files.directory}, which has none"
        )
    source, env_kwargs = env_source(config.env_id, config.make, config.wrappers)
    results, kept = [], []
    with PlanEnv(source, codec=codec_of(config.codec), env_kwargs=env_kwargs, compiled=False) as env:
        for path in paths:
            arrays = read_trajectory(path)
            played, differences = replay(env, arrays)
            if record is not None:
                kept.append(record_of(arrays))
            results.append((str(path), played.num_steps, played.total_return, differences))
    is_same = not any(differences for *_, differences in results)
    if is_same and record is not None:
        write_record(record, config, kept)
    if arguments.json:
        names = ("file", "num_steps", "return", "differences")
        listed = [dict(zip(names, result, strict=True)) for result in results]
        written = str(record) if is_same and record is not None else None
        print(json.dumps({"exact": is_same, "trajectories": listed, "record": written}))
        return 0 if is_same else FAILED
    for file, num_steps, total_return, differences in results:
        outcome = "DIFFERS" if differences else "every bit is the same"
        print(f"{file}: {num_steps} steps, return {total_return:.2f}: {outcome}")
        for line in differences:
            print(f"  {line}")
    if record is not None:
        print(f"record: {record}" if is_same else "record: not written, since a replay differs")
    return 0 if is_same else FAILED
