"""Which Python CI runs the unit tests on once more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
SHIM = "echo 'pyenv: python3.14: command not found' >&2; exit 127"


def _program(path: Path, script: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _newest(tmp_path: Path, default: str) -> str:
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}",
        "PYENV_ROOT": str(tmp_path / "pyenv"),
        "HOME": str(tmp_path),
    }
    command = [str(REPOSITORY / ".ci" / "newest_python"), default]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def shims(tmp_path: Path) -> None:
    """Programs on the PATH that only say that they are not there, also in the place of those of the machine."""
    for minor in range(11, 21):
        _program(tmp_path / "bin" / f"python3.{minor}", SHIM)


@pytest.mark.usefixtures("shims")
def test_the_newest_that_starts(tmp_path: Path) -> None:
    older = _program(tmp_path / "bin" / "python3.12")
    assert _newest(tmp_path, "3.11") == f"{older}\n"
    newer = _program(tmp_path / "pyenv" / "versions" / "3.13.5" / "bin" / "python3")
    _program(tmp_path / "pyenv" / "versions" / "3.14.0" / "bin" / "python3", "exit 1")
    assert _newest(tmp_path, "3.11") == f"{newer}\n"
    assert _newest(tmp_path, "3.13") == f"{older}\n"


@pytest.mark.usefixtures("shims")
def test_none_but_the_default_one_or_none_that_is_supported(tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "python3.11")
    _program(tmp_path / "bin" / "python3.20")
    _program(tmp_path / "pyenv" / "versions" / "3.10.2" / "bin" / "python3")
    assert _newest(tmp_path, "3.11") == ""
