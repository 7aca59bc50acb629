"""The blocks of docs/setup.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kit.warm_python import write_treadle

PAGE = Path(__file__).parents[2] / "docs" / "setup.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block(block: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "treadle"
    program.parent.mkdir()
    write_treadle(program)
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "TREADLE_HOME": str(tmp_path / "home"),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["sh", "-ec", block],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not-a-real-key" not in done.stdout + done.stderr


def test_the_page_has_blocks() -> None:
    assert len(BLOCKS) >= 3
