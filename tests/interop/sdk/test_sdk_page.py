"""The code that docs/app-server.md shows for the official SDK, run with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import BLOCKS, Block

pytestmark = pytest.mark.interop
OFFICIAL = [block for block in BLOCKS if block.text.startswith("from openai_codex import") and not block.runs]


@pytest.mark.parametrize("block", OFFICIAL, ids=str)
def test_the_page_runs_with_the_official_sdk(block: Block, sdk_library: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("treadle")
    code = block.text.replace("/path/to/bin/treadle", str(program))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(sdk_library.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("I am Treadle's offline model")


def test_there_is_such_code() -> None:
    assert OFFICIAL
