"""`treadle doctor` with the real programs: all four answer through our runners, and none of them in the user's home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop
ENGINES = ("codex", "claude", "opencode", "pi")


@pytest.mark.timeout(400)
def test_the_doctor_finds_the_real_engines_well(engine_program: Callable[[str], Path], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ENGINES:
        (programs / name).write_text(f'#!/bin/sh\nexec "{engine_program(name)}" "$@"\n')
        (programs / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "doctor", "--json", *ENGINES],
        env={**os.environ, "HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (0, True), done.stdout
    for name in ENGINES:
        version, answer = found["subjects"][name][1], found["subjects"][name][-1]
        assert version["what"].startswith("version "), version
        assert answer["what"] == "answers through a mock model"
    assert list(home.iterdir()) == []
