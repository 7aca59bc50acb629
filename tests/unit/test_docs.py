"""The Python in README and docs runs, and so do the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE))
]
TOKEN = "a-token-for-the-documents"


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the documents call build-host."""
    token = tmp_path_factory.mktemp("docs") / "token"
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "treadle", "exec-server", "--token-file", str(token)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def run(arguments: list[str], cwd: Path) -> str:
    # A home of its own: nobody's threads, settings or keys.
    env = {name: value for name, value in os.environ.items() if name != "CODEX_HOME"}
    env |= {"HOME": str(cwd), "TREADLE_HOME": str(cwd / "home")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_documented_code_runs(block: str, server_url: str, tmp_path: Path) -> None:
    code = block.replace("ws://build-host:8765", server_url).replace('token="…"', f"token={TOKEN!r}")
    script = tmp_path / "block.py"
    script.write_text(code)
    assert run([str(script)], tmp_path)


@pytest.mark.parametrize("example", sorted((REPOSITORY / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    assert run([str(example)], tmp_path)


def test_documents_have_code() -> None:
    assert len(BLOCKS) >= 5
