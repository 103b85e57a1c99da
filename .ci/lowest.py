"""Print the lowest versions that pyproject.toml allows, as constraints for pip."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
names = ("atari", "box2d", "classic-control", "highway", "minigrid", "mujoco", "openspiel", "toy-text")
for requirement in [*project["dependencies"], *(item for name in names for item in extras[name])]:
    match = re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement)
    if match:
        print(f"{match[1]}=={match[2]}.*")
