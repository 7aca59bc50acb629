"""`fs/*` of the app-server, in process and over stdio. Every path is below the temporary directory of the test."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kit.async_app_client import AsyncAppClient, InProcess
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST
from treadle.server import file_watches
from treadle.server.file_watches import FileWatches
from treadle.server.methods import fs_methods as module

pytestmark = pytest.mark.anyio


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- files and directories -------------------------------------------------------------------------------------------


async def test_a_file_is_written_and_read(client: AsyncAppClient, workspace: Path) -> None:
    path = str(workspace / "x")
    assert await client.request("fs/writeFile", {"path": path, "dataBase64": coded(b"\0\xffhi")}) == {}
    assert (workspace / "x").read_bytes() == b"\0\xffhi"
    assert await client.request("fs/readFile", {"path": path}) == {"dataBase64": coded(b"\0\xffhi")}


async def test_files_start_no_helper(local: InProcess, workspace: Path) -> None:
    await local.request("fs/writeFile", {"path": str(workspace / "x"), "dataBase64": ""})
    assert local.server._environment is None


async def test_metadata_is_about_the_target_of_a_link(client: AsyncAppClient, workspace: Path) -> None:
    (workspace / "x").touch()
    os.utime(workspace / "x", ns=(0, 1_234_000_000))
    (workspace / "link").symlink_to("x")
    found = await client.request("fs/getMetadata", {"path": str(workspace / "link")})
    assert found == {
        "isDirectory": False,
        "isFile": True,
        "isSymlink": True,
        "createdAtMs": 0,
        "modifiedAtMs": 1234,
    }
    assert (await client.request("fs/getMetadata", {"path": str(workspace)}))["isDirectory"]


async def test_directories_are_made_listed_copied_and_removed(client: AsyncAppClient, workspace: Path) -> None:
    deep = workspace / "a" / "b"
    assert await client.request("fs/createDirectory", {"path": str(deep)}) == {}
    (deep / "x").write_text("content")
    copy = {"sourcePath": str(workspace / "a"), "destinationPath": str(workspace / "c"), "recursive": True}
    assert await client.request("fs/copy", copy) == {}
    assert (workspace / "c" / "b" / "x").read_text() == "content"
    listed = await client.request("fs/readDirectory", {"path": str(workspace)})
    assert listed["entries"] == [{"fileName": name, "isDirectory": True, "isFile": False} for name in ("a", "c")]
    assert await client.request("fs/remove", {"path": str(workspace / "a")}) == {}
    assert os.listdir(workspace) == ["c"]


async def test_what_is_not_there_may_be_removed(client: AsyncAppClient, workspace: Path) -> None:
    assert await client.request("fs/remove", {"path": str(workspace / "none")}) == {}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("readFile", {"path": "none"}, "No such file or directory (os error 2)"),
        ("getMetadata", {"path": "none"}, "No such file or directory (os error 2)"),
        ("readDirectory", {"path": "none"}, "No such file or directory (os error 2)"),
        ("readDirectory", {"path": "file"}, "Not a directory (os error 20)"),
        ("writeFile", {"path": "none/x", "dataBase64": ""}, "No such file or directory (os error 2)"),
        ("writeFile", {"path": "folder", "dataBase64": ""}, "Is a directory (os error 21)"),
        ("createDirectory", {"path": "folder", "recursive": False}, "File exists (os error 17)"),
        ("createDirectory", {"path": "none/x", "recursive": False}, "No such file or directory (os error 2)"),
        ("remove", {"path": "none", "force": False}, "No such file or directory (os error 2)"),
        ("remove", {"path": "folder", "recursive": False}, "Directory not empty (os error 39)"),
        ("copy", {"sourcePath": "none", "destinationPath": "x"}, "No such file or directory (os error 2)"),
    ],
)
async def test_what_the_system_refuses_is_internal(
    local: InProcess, workspace: Path, method: str, params: dict[str, Any], text: str
) -> None:
    (workspace / "file").touch()
    (workspace / "folder" / "inside").mkdir(parents=True)
    absolute = {
        name: str(workspace / value) if name.lower().endswith("path") else value for name, value in params.items()
    }
    error = await local.refusal(f"fs/{method}", absolute)
    assert error.code == INTERNAL_ERROR
    assert error.message.startswith(text)


async def test_what_makes_no_sense_is_the_fault_of_the_request(client: AsyncAppClient, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    folder, pipe = str(workspace), str(workspace / "pipe")
    refusals = [
        ("readFile", {"path": folder}, f"path `{folder}` is not a file"),
        ("readFile", {"path": pipe}, f"path `{pipe}` is not a file"),
        ("writeFile", {"path": f"{folder}/x", "dataBase64": "!"}, "fs/writeFile requires valid base64 dataBase64"),
        ("copy", {"sourcePath": folder, "destinationPath": f"{folder}2"}, "fs/copy requires recursive: true"),
        ("copy", {"sourcePath": pipe, "destinationPath": f"{folder}/x"}, "fs/copy only supports regular files"),
    ]
    for method, params, text in refusals:
        error = await client.refusal(f"fs/{method}", params)
        assert error.code == INVALID_REQUEST
        assert error.message.startswith(text)


@pytest.mark.parametrize("path", ["relative/none", "", "~/none"])
async def test_paths_are_absolute(client: AsyncAppClient, path: str) -> None:
    """Asked of methods that change nothing; the others go through the same check first."""
    for method, more in (("readFile", {}), ("getMetadata", {}), ("readDirectory", {}), ("watch", {"watchId": "w"})):
        error = await client.refusal(f"fs/{method}", {"path": path, **more})
        assert error.code == INVALID_REQUEST
        assert error.message == "Invalid request: AbsolutePathBuf deserialized without a base path"


# --- watching --------------------------------------------------------------------------------------------------------


def changed(client: AsyncAppClient, name: str) -> set[str]:
    notices = client.params_of("fs/changed")
    return {path for notice in notices if notice["watchId"] == name for path in notice["changedPaths"]}


async def test_a_directory_is_watched_for_the_names_in_it(client: AsyncAppClient, workspace: Path) -> None:
    (workspace / "old").touch()
    watched = await client.request("fs/watch", {"path": f"{workspace}/./", "watchId": "w"})
    assert watched == {"path": str(workspace)}
    (workspace / "new").touch()
    (workspace / "old").write_text("changed")
    await client.until(lambda: changed(client, "w") >= {str(workspace / "new"), str(workspace / "old")})
    (workspace / "new").rename(workspace / "moved")
    await client.until(lambda: str(workspace / "moved") in changed(client, "w"))


async def test_a_file_is_watched_before_it_is_there(client: AsyncAppClient, workspace: Path) -> None:
    path = workspace / "deep" / "er" / "x"
    await client.request("fs/watch", {"path": str(path), "watchId": "w"})
    path.parent.mkdir(parents=True)
    path.write_text("1")
    await client.until(lambda: changed(client, "w") == {str(path)})
    client.notices.clear()
    path.write_text("2")
    await client.until(lambda: changed(client, "w") == {str(path)})
    client.notices.clear()
    path.parent.rename(workspace / "away")
    await client.until(lambda: changed(client, "w") == {str(path)})


async def test_a_watch_tells_its_own_changes_only(client: AsyncAppClient, workspace: Path) -> None:
    for name in ("a", "b"):
        await client.request("fs/watch", {"path": str(workspace / name), "watchId": name})
    (workspace / "a").touch()
    (workspace / "other").touch()
    (workspace / "b").touch()
    await client.until(lambda: changed(client, "a") and changed(client, "b"))
    assert changed(client, "a") == {str(workspace / "a")}
    assert changed(client, "b") == {str(workspace / "b")}


async def test_what_is_no_longer_watched_is_not_told(client: AsyncAppClient, workspace: Path) -> None:
    for name in ("gone", "kept"):
        await client.request("fs/watch", {"path": str(workspace), "watchId": name})
    for _ in range(2):
        assert await client.request("fs/unwatch", {"watchId": "gone"}) == {}
    (workspace / "x").touch()
    await client.until(lambda: changed(client, "kept"))
    assert changed(client, "gone") == set()


async def test_a_name_is_used_once_and_may_be_used_again(client: AsyncAppClient, workspace: Path) -> None:
    params = {"path": str(workspace), "watchId": "w"}
    await client.request("fs/watch", params)
    error = await client.refusal("fs/watch", params)
    assert (error.code, error.message) == (INVALID_REQUEST, "watchId already exists: w")
    await client.request("fs/unwatch", {"watchId": "w"})
    await client.request("fs/watch", params)


async def test_watches_are_few_and_end_with_the_client(
    local: InProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WATCHES", 2)
    for name in ("a", "b"):
        await local.request("fs/watch", {"path": str(workspace), "watchId": name})
    assert "fs/unwatch" in (await local.refusal("fs/watch", {"path": str(workspace), "watchId": "c"})).message
    (watches,) = local.server.watches(local.client).values()
    assert isinstance(watches, FileWatches)
    local.client.close()
    assert len(watches) == 0


async def test_the_last_unwatch_gives_everything_back(local: InProcess, workspace: Path) -> None:
    await local.request("fs/watch", {"path": str(workspace), "watchId": "w"})
    await local.request("fs/unwatch", {"watchId": "w"})
    assert local.server.watches(local.client) == {}


async def test_many_changes_are_told_as_one(local: InProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watches, "MAX_NAMES", 3)
    await local.request("fs/watch", {"path": str(workspace), "watchId": "w"})
    for number in range(9):
        (workspace / str(number)).touch()
    await local.until(lambda: changed(local, "w"))
    assert changed(local, "w") == {str(workspace)}
