"""What clients ask of another machine: where a thread begins, files by some letters of a name, commands."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, scene
from treadle.errors import RpcError
from treadle.own_python import treadle_command

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine `box` begins; `below` is a folder in it."""
    monkeypatch.delenv("CODEX_EXEC_SERVER_URL", raising=False)
    folder = tmp_path / "there"
    (folder / "below").mkdir(parents=True)
    return folder


@asynccontextmanager
async def with_box(tmp_path: Path, there: Path, **table: str | bool) -> AsyncIterator[Scene]:
    server = treadle_command("exec-server", "--listen", "stdio://")
    given: dict[str, Any] = {"program": server[0], "args": [*server[1:]], "cwd": str(there), "env.WHERE": "there"}
    settings = {f"environments.box.{key}": value for key, value in {**given, **table}.items()}
    async with scene(tmp_path, settings=settings) as stage:
        yield stage


def place_of(answer: Json) -> tuple[str, str]:
    (place,) = answer["thread"]["environments"]
    return place["environmentId"], place["cwd"]


# --- where a thread begins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workdir", [True, False], ids=["workdir", "its own"])
async def test_a_thread_that_names_nothing_begins_where_the_default_environment_works(
    tmp_path: Path, there: Path, workdir: bool
) -> None:
    table = {"workdir": str(there / "below")} if workdir else {}
    async with with_box(tmp_path, there, default=True, **table) as stage:
        answer = await stage.client.request("thread/start", {})
        assert place_of(answer) == ("box", str(there / "below" if workdir else there))
        assert answer["cwd"] == str(stage.workspace), "clients see where the server is"
        # As it was recorded: a directory that is named is one there.
        answer = await stage.client.request("thread/start", {"cwd": str(there)})
        assert place_of(answer) == ("box", str(there))


async def test_an_environment_without_a_directory_is_entered_where_it_works(tmp_path: Path, there: Path) -> None:
    async with with_box(tmp_path, there, workdir=str(there / "below")) as stage:
        box = [{"environmentId": "box"}]
        answer = await stage.client.request("thread/start", {"environments": box})
        assert place_of(answer) == ("box", str(there / "below"))
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        await stage.run(thread, environments=box)
        read = await stage.client.request("thread/read", {"threadId": thread})
        assert place_of(read) == ("box", str(there / "below"))
        await stage.client.request(
            "thread/settings/update", {"threadId": thread, "environments": [{"environmentId": "local"}]}
        )
        read = await stage.client.request("thread/read", {"threadId": thread})
        assert place_of(read) == ("local", str(stage.workspace))


# --- files by some letters -------------------------------------------------------------------------------------------


def fill(folder: Path) -> None:
    for name in ("src/Main.py", "src/maintenance/notes (1).txt", "build/main.o", "node_modules/main.js", "ämain.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


async def search(stage: Scene, query: str, *roots: str) -> list[tuple[str, str]]:
    params = {"query": query, "roots": roots or ("below",), "environmentId": "box"}
    files = (await stage.client.request("fuzzyFileSearch", params))["files"]
    return [(found["path"], found["match_type"]) for found in files]


@pytest.mark.parametrize("repository", [True, False])
async def test_files_are_searched_there(tmp_path: Path, there: Path, repository: bool) -> None:
    fill(there / "below")
    if repository:
        (there / "below/.gitignore").write_text("build\nnode_modules\n")
        subprocess.run(["git", "init", "-q", "."], cwd=there / "below", check=True, timeout=60)
    async with with_box(tmp_path, there) as stage:
        found = await search(stage, "mAin")
        assert ("src/Main.py", "file") in found
        assert ("src/maintenance", "directory") in found
        assert ("ämain.py", "file") in found
        assert (("build/main.o", "file") in found) is not repository
        assert not any("node_modules" in path for path, _ in found)
        assert await search(stage, "src notes") == [("src/maintenance/notes (1).txt", "file")]
        assert await search(stage, "s(1)") == [("src/maintenance/notes (1).txt", "file")]
        assert await search(stage, "ÄMAIN") == [("ämain.py", "file")]
        assert await search(stage, "nosuchthing") == []
        assert await search(stage, "") == []
        assert await search(stage, "Main.py", "below/src", str(there / "below")) != []


async def test_a_search_that_follows_what_is_typed_looks_there(tmp_path: Path, there: Path) -> None:
    fill(there / "below")
    async with with_box(tmp_path, there) as stage:
        params = {"sessionId": "s", "roots": ["below"], "environmentId": "box"}
        await stage.client.request("fuzzyFileSearch/sessionStart", params)
        await stage.client.request("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": "main.py"})
        updated = await stage.client.wait_for("fuzzyFileSearch/sessionUpdated", lambda params: params["query"] != "")
        assert {found["path"] for found in updated["params"]["files"]} == {"src/Main.py", "ämain.py"}


async def test_what_is_found_is_bounded(tmp_path: Path, there: Path) -> None:
    for number in range(3000):
        (there / "below" / f"{'x' * 200}-{number}").touch()
    async with with_box(tmp_path, there) as stage:
        assert len(await search(stage, "x")) == 50
        assert await search(stage, "-2999") == [(f"{'x' * 200}-2999", "file")], "more letters, and it is found"


async def test_an_environment_that_nobody_knows_is_said(tmp_path: Path, there: Path) -> None:
    async with with_box(tmp_path, there) as stage:
        for method, params in (
            ("fuzzyFileSearch", {"query": "x", "roots": []}),
            ("command/exec", {"command": ["true"]}),
        ):
            with pytest.raises(RpcError, match="unknown turn environment id `nix`"):
                await stage.client.request(method, {**params, "environmentId": "nix"})


async def test_the_skills_of_a_thread_are_those_of_its_machine(tmp_path: Path, there: Path) -> None:
    async with with_box(tmp_path, there, workdir=str(there)) as stage:
        for folder, name in ((there, "far"), (stage.workspace, "near")):
            skill = folder / ".agents/skills" / name / "SKILL.md"
            skill.parent.mkdir(parents=True)
            skill.write_text(f"---\nname: {name}\ndescription: Does {name} things.\n---\nDo it.\n")
        found = {}
        for environment in ("box", "local"):
            thread = await stage.start(environments=[{"environmentId": environment}])
            (entry,) = (await stage.client.request("skills/list", {"threadId": thread}))["data"]
            found[entry["cwd"]] = [skill["name"] for skill in entry["skills"]]
        assert found == {str(there): ["far"], str(stage.workspace): ["near"]}


# --- commands of a client --------------------------------------------------------------------------------------------


async def test_a_command_of_a_client_runs_there_in_its_sandbox(tmp_path: Path, there: Path) -> None:
    async with with_box(tmp_path, there) as stage:

        async def run(command: str, **params: Any) -> Json:
            given = {"command": ["sh", "-c", command], "environmentId": "box", **params}
            return await stage.client.request("command/exec", given)

        assert (await run("echo $WHERE; pwd", cwd="below"))["stdout"] == f"there\n{there}/below\n"
        assert (await run("pwd"))["stdout"] == f"{there}\n"
        refused = await run("touch new", sandboxPolicy={"type": "readOnly"})
        assert refused["exitCode"] != 0
        assert not (there / "new").exists()
