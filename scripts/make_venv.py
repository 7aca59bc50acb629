"""Make the virtual environment of this repository, or bring it up to date. Standard library only.

A registry that does not answer at once is tried again: a build should not fail for a hiccup.
"""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from pathlib import Path

TRIES = 4
REPOSITORY = Path(__file__).resolve().parent.parent


def main() -> int:
    if sys.version_info < (3, 11):
        print("treadle needs Python 3.11 or newer: run `make PYTHON=python3.11 venv`", file=sys.stderr)
        return 1
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv").absolute()
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making the virtual environment {folder.name} …", flush=True)
        venv.create(folder, with_pip=True)
    print("installing treadle and its development tools …", flush=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[dev]"]
    for tried in range(1, TRIES + 1):
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0:
            return 0
        if tried < TRIES:
            print(f"pip failed, trying again ({tried + 1} of {TRIES}) …", file=sys.stderr, flush=True)
            time.sleep(2**tried)
    print("pip failed: is the package registry reachable?", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
