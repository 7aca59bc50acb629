"""Machines in network namespaces with faults at random; the whole of it is `python -m bench environments-soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.environments_soak.network import missing

REPOSITORY = Path(__file__).parents[3]
# Those that are over soon, of each kind.
KINDS = ("cut", "silence", "reset", "killed", "stopped", "full disk", "app killed", "app killed while cut")


@pytest.mark.timeout(300)
def test_no_byte_is_lost_and_no_command_runs_twice(tmp_path: Path) -> None:
    if (problem := missing()) is not None:
        pytest.skip(f"no machines can be made here: {problem}")
    words = [sys.executable, "-m", "bench", "environments-soak", "--faults", "6", "--seed", "4"]
    kinds = [word for kind in KINDS for word in ("--only", kind)]
    done = subprocess.run(
        [*words, *kinds, "--folder", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "TREADLE_LOG": "info"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 problems" in done.stdout
