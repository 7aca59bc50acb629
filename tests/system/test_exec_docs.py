"""The recipes of docs/exec.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.testing import AppServerHarness

PAGE = Path(__file__).parents[2] / "docs" / "exec.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("line", LINES)
def test_a_recipe(line: str, tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("The answer.")
        (harness.workspace / "notes.txt").write_text("a note\n")
        program = tmp_path / "bin" / "treadle"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m treadle "$@"\n')
        program.chmod(0o755)
        environment = {
            **os.environ,
            "TREADLE_HOME": str(harness.home),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=harness.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        written = re.search(r"(?:> |-o |tee )(\w+\.txt)", line)
        answers = [done.stdout] if written is None else [(harness.workspace / written[1]).read_text()]
        assert [answer.strip() for answer in answers] == ["The answer."]
