"""Runs the peers' own tests of vector environments with planvec's classes in place of theirs.

The tests are not part of the peers' packages: check out their repositories at the installed versions.

    python benchmarks/peer_tests.py --gymnasium path/to/Gymnasium
    python benchmarks/peer_tests.py --sb3 path/to/stable-baselines3    # where stable-baselines3 is installed

Each suite runs twice: with the peer's class, and with planvec's. A test counts if it passes with the peer's
class. The exit status is 1 if one of these fails with planvec's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GYMNASIUM = [
    f"tests/vector/test_{name}.py"
    for name in ("async_vector_env", "autoreset_mode", "observation_mode", "vector_env", "vector_env_info")
]
SB3 = ["tests/test_vec_envs.py", "-k", "Subproc or is_wrapped"]
REPLACED = "PLANVEC_REPLACES"
"""Environment variable that tells pytest, which loads this file as a plugin, whose class to replace."""


def pytest_configure() -> None:
    """Replace a class before the tests import it."""
    peer = os.environ.get(REPLACED)
    if peer == "gymnasium":
        import gymnasium.vector
        import gymnasium.vector.async_vector_env as module

        from planvec.vector import AsyncVectorEnv

        gymnasium.vector.AsyncVectorEnv = module.AsyncVectorEnv = AsyncVectorEnv
    elif peer == "sb3":
        import stable_baselines3.common.vec_env as vec_env
        import stable_baselines3.common.vec_env.subproc_vec_env as module

        from planvec.vector import SubprocVecEnv

        vec_env.SubprocVecEnv = module.SubprocVecEnv = SubprocVecEnv


def outcomes(checkout: Path, tests: list[str], peer: str) -> dict[str, str]:
    """Run tests of a checkout. Returns the id of each test -> "PASSED", "FAILED" or another word of pytest.

    Args:
        checkout: The folder of the peer's repository.
        tests: Arguments of pytest.
        peer: Whose class to replace; "" replaces none.
    """
    plugins = ["-p", "peer_tests", "-p", "no:cacheprovider", "-p", "no:xdist"]
    paths = (str(checkout), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=short", *plugins, *tests]
        environ = {**os.environ, REPLACED: peer, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": folder}
        done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR"):
            name, _, reason = rest.partition(" - ")
            found[name] = word
            if word != "PASSED" and peer:
                print(f"  {word} {name}: {reason}", flush=True)
    if not found:
        raise SystemExit(f"no test of {checkout} ran:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return found


def compare(name: str, checkout: Path, tests: list[str]) -> bool:
    """Run a suite twice, print the numbers, and return whether planvec passes all that the peer passes."""
    print(f"{name}: with its own class", flush=True)
    theirs = outcomes(checkout, tests, "")
    passed = {test for test, word in theirs.items() if word == "PASSED"}
    print(f"{name}: with planvec's", flush=True)
    ours = outcomes(checkout, tests, name)
    lost = sorted(test for test in passed if ours.get(test) != "PASSED")
    print(f"{name}: {len(passed) - len(lost)} of the {len(passed)} tests that pass with its own class pass")
    for test in lost:
        print(f"  lost: {test}")
    return not lost


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gymnasium", type=Path, metavar="CHECKOUT")
    parser.add_argument("--sb3", type=Path, metavar="CHECKOUT")
    arguments = parser.parse_args()
    if arguments.gymnasium is None and arguments.sb3 is None:
        parser.error("expected --gymnasium or --sb3 with the folder of a checkout, got neither")
    is_good = True
    if arguments.gymnasium is not None:
        is_good &= compare("gymnasium", arguments.gymnasium.resolve(), GYMNASIUM)
    if arguments.sb3 is not None:
        is_good &= compare("sb3", arguments.sb3.resolve(), SB3)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
