"""`treadle hooks`: what people see, type and trust."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kit.warm_python import run_python
from system.hooks.hooks_scene import command, says, write_hooks


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "project"


def _run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TREADLE_HOME": str(project.parent / "home"), "CODEX_HOME": ""}
    return run_python(["-m", "treadle", "hooks", *arguments], cwd=project, env=env)


def test_list_trust_and_test(project: Path) -> None:
    note = project.parent / "note"
    events = {"PreToolUse": [command(says(stderr="not \x1b[31mthat", code=2, note=note), matcher="Bash", guard=True)]}
    path = write_hooks(project / ".codex", events)
    listed = _run(project, "list")
    assert listed.returncode == 0
    assert "NOT TRUSTED" in listed.stdout
    assert "\x1b" not in listed.stdout
    (hook,) = json.loads(_run(project, "list", "--json").stdout)
    assert (hook["key"], hook["trustStatus"], hook["source"]) == (
        f"{path}:pre_tool_use:0:0",
        "untrusted",
        "project",
    )

    # Nothing runs before it is trusted, and nobody is there to be asked.
    tried = _run(project, "test", "PreToolUse")
    assert "not run: NOT TRUSTED" in tried.stdout
    assert not note.exists()
    refused = _run(project, "trust")
    assert (refused.returncode, "nobody can be asked here" in refused.stderr) == (2, True)
    unknown = _run(project, "trust", "--yes", "/nowhere:stop:0:0")
    assert (unknown.returncode, "there is no hook /nowhere:stop:0:0" in unknown.stderr) == (1, True)
    assert "NOT TRUSTED" in _run(project, "list").stdout

    done = _run(project, "trust", "--yes")
    assert (done.returncode, done.stdout) == (0, "Trusted 1 hook.\n")
    assert "waits to be trusted" in _run(project, "trust").stdout
    tried = _run(project, "test", "PreToolUse", "--input", '{"tool_input": {"command": "ls"}}')
    assert tried.returncode == 1
    assert "blocked" in tried.stdout
    assert "\x1b" not in tried.stdout
    assert json.loads(note.read_text())["tool_input"] == {"command": "ls"}
    other = _run(project, "test", "PreToolUse", "--input", '{"tool_name": "apply_patch"}')
    assert (other.returncode, other.stdout) == (0, "No hook is called for PreToolUse with this input.\n")


@pytest.mark.parametrize("given", ["{", '{"tool_name": 5}', "[]"])
def test_an_input_that_cannot_be_used(project: Path, given: str) -> None:
    tried = _run(project, "test", "PreToolUse", "--input", given)
    assert tried.returncode == 2
    assert "--input cannot be used" in tried.stderr


def test_nothing_there(project: Path) -> None:
    assert _run(project, "list").stdout == f"No hooks apply in {project}.\n"
    assert _run(project, "list", "--cd", "nowhere").returncode == 2
    assert _run(project, "test", "Nothing").returncode == 2
