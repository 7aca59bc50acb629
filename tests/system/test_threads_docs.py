"""The recipes of docs/threads.md, run as they stand there, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from kit.warm_python import write_treadle
from treadle.testing import AppServerHarness

PAGE = Path(__file__).parents[2] / "docs" / "threads.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_recipes(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("The project makes looms.")
        program = tmp_path / "bin" / "treadle"
        program.parent.mkdir()
        write_treadle(program)
        path = f"{program.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-e", "-c", "\n".join(BLOCKS)],
            cwd=harness.workspace,
            env={**os.environ, "TREADLE_HOME": str(harness.home), "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(BLOCKS) == 3
        assert done.stdout.count("The project makes looms.") == 3  # by exec, show and search
        written = sorted(path.name for path in harness.workspace.iterdir())
        assert written == ["thread.html", "thread.json", "thread.md"]
