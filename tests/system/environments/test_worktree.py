"""A worktree of this machine as a place of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ExecError
from treadle.execution import Environment, find_provider

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside/file").write_text("first\n")
    for words in ("init -q -b main", "add .", "-c user.name=me -c user.email=me@localhost commit -qm first"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True, timeout=60)
    return folder


async def stopped(options: dict[str, Any]) -> bool:
    return await find_provider("worktree").stop("try", options, "unused")


async def test_commands_work_on_the_branch_and_leave_the_project_alone(project: Path) -> None:
    options = {"folder": str(project / "inside"), "branch": "try-it"}
    opened = await find_provider("worktree").open("try", options, "unused")
    assert opened.workdir == str(project / ".worktrees/try-it/inside")
    async with await Environment.connect(opened.command) as place:
        words = ["sh", "-c", "git branch --show-current; echo second > file"]
        assert (await place.run(words, cwd=opened.workdir, timeout=60)).text == "try-it\n"
    assert (project / "inside/file").read_text() == "first\n"
    with pytest.raises(ExecError, match="has changes that are not committed"):
        await stopped(options)
    assert await stopped({**options, "force": True})
    assert not (project / ".worktrees/try-it").exists()
    assert not await stopped(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"branch": "x"}, "missing required field `folder`"),
        ({"folder": "/nowhere/at/all", "branch": "x"}, "/nowhere/at/all is not there"),
        ({"folder": "{tmp}", "branch": "x"}, "git init"),
        ({"folder": "{tmp}", "branch": "--force"}, "is no name of a branch"),
    ],
)
async def test_what_cannot_be_used_is_said(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    given = {name: value.format(tmp=tmp_path) for name, value in options.items()}
    with pytest.raises(ExecError, match=said):
        await find_provider("worktree").open("try", given, "unused")
