"""What is made by scripts is as the scripts make it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.mark.parametrize("script", ["make_calls.py", "make_compat.py", "make_sync.py", "make_types.py"])
def test_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), "--check"], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stdout + done.stderr
