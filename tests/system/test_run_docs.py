"""The recipes of docs/run.md and the output that the README shows, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from system.runners.fake_engine import fake

REPOSITORY = Path(__file__).parents[2]
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "run.md").read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

CODEX = """
if "--version" in sys.argv:
    print("codex-cli 0.163.0")
    sys.exit()
sys.stdin.read()
start("0199a213-81c0-7800-8aa1-bbab2a035a53")
answer("The answer.")
done()
"""
CLAUDE = """
import uuid
sys.stdin.read()
session = str(uuid.uuid4())
say(type="system", subtype="init", session_id=session, model="m", cwd=".", tools=[])
say(type="result", subtype="success", is_error=False, result="The answer.", session_id=session, usage={})
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake(programs, CODEX)
    fake(programs, CLAUDE, "claude")
    (programs / "treadle").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m treadle "$@"\n')
    (programs / "treadle").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in ("CODEX_HOME", "TREADLE_ENGINE")}
    home = {"HOME": str(tmp_path), "TREADLE_HOME": str(tmp_path / "home")}
    return {**inherited, **home, "PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}


def shell(line: str, environment: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("line", LINES)
def test_a_recipe_of_run(line: str, environment: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    done = shell(line, environment, project)
    if line.startswith("treadle doctor") and "codex" in line:
        # This codex does not ask the mock model.
        assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)
        return
    assert done.returncode == 0, done.stderr
    if " > " in line:
        [file] = project.iterdir()
        assert "The answer." in file.read_text()
        assert done.stdout == ""
    elif "run" in line:
        assert "The answer." in done.stdout or "offline model" in done.stdout


def test_the_readme_shows_what_is_really_printed(environment: dict[str, str], tmp_path: Path) -> None:
    [block] = re.findall(r"```console\n\$ (treadle run .*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    command, expected = block.split("\n", 1)
    project = tmp_path / "project"
    project.mkdir()
    (project / "hello.py").write_text('print("hello")\n')
    done = shell(f"{command} 2>&1 >/dev/null", environment, project)
    assert done.returncode == 0, done.stderr
    # Where bubblewrap is missing, a line says so.
    printed = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("! This machine cannot"))
    assert _comparable(printed) == _comparable(expected)


def _comparable(shown: str) -> str:
    """Without ids and times; how many tokens are counted depends on the length of paths."""
    text = UUID.sub("ID", shown)
    text = re.sub(r"[\d,]+ tokens in, [\d,]+ out", "TOKENS", text)
    return re.sub(r" · [\d.]+s$| in \d+s", "", text, flags=re.MULTILINE)
