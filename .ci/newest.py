"""Print the newest Python of this machine that pyproject.toml names; this one if there is no newer one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
minors = sorted(map(int, re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)), reverse=True)
pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
for minor in minors:
    if minor <= sys.version_info.minor:
        break
    found = [shutil.which(f"python3.{minor}"), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))[::-1]]
    # A shim of pyenv stands for every version, and runs one; Debian's Python may lack venv.
    code = f"import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    for python in filter(None, found):
        if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
            print(python)
            sys.exit()
print(sys.executable)
