"""Check the wheel and the sdist in a folder: what they hold, and planvec as the wheel installed it.

python package.py DIST README: with the Python of the environment, from a folder outside the checkout.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

dist, readme = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
checkout = readme.parent
files = subprocess.run(
    ["git", "-C", checkout, "ls-files", "planvec"], capture_output=True, text=True, check=True
).stdout.split()
(wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
assert in_wheel == {*files}, in_wheel ^ {*files}
with tarfile.open(sdist) as archive:
    in_sdist = {member.name.partition("/")[2] for member in archive if member.isfile()}
in_sdist = {name for name in in_sdist if not name.startswith("planvec.egg-info/")}
others = {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
assert in_sdist == {*files, *others}, in_sdist ^ {*files, *others}

import planvec  # noqa: E402 - which is not imported before the files are known to be complete

assert not Path(planvec.__file__).is_relative_to(checkout), planvec.__file__
blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
Path("quickstart.py").write_text(blocks[0])
command = str(Path(sys.executable).with_name("planvec"))
for arguments in (
    [sys.executable, "-W", "error", "quickstart.py"],
    [command, "--help"],
    [command, "plan", "CartPole-v1", "--seed", "0", "--no-progress", "--max-steps", "20"],
    [command, "check", "CartPole-v1", "--steps", "50"],
):
    print("$", *arguments, flush=True)
    subprocess.run(arguments, check=True)
