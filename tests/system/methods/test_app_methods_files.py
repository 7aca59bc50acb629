"""`fs/*` of the app-server, in process and over stdio. Every path is below the temporary directory of the test."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from system.methods.conftest import both_roads
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST
from treadle.server import FileWatches
from treadle.server.methods import fs_methods as module


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- files and directories -------------------------------------------------------------------------------------------


@both_roads
def test_a_file_is_written_and_read(client: AppClient, workspace: Path) -> None:
    path = str(workspace / "x")
    assert client.call("fs/writeFile", {"path": path, "dataBase64": coded(b"\0\xffhi")}) == {}
    assert (workspace / "x").read_bytes() == b"\0\xffhi"
    assert client.call("fs/readFile", {"path": path}) == {"dataBase64": coded(b"\0\xffhi")}


def test_files_start_no_helper(here: ServerHere, local: AppClient, workspace: Path) -> None:
    local.call("fs/writeFile", {"path": str(workspace / "x"), "dataBase64": ""})
    assert here.server._environment is None


def test_metadata_is_about_the_target_of_a_link(client: AppClient, workspace: Path) -> None:
    (workspace / "x").touch()
    os.utime(workspace / "x", ns=(0, 1_234_000_000))
    (workspace / "link").symlink_to("x")
    found = client.call("fs/getMetadata", {"path": str(workspace / "link")})
    assert found == {
        "isDirectory": False,
        "isFile": True,
        "isSymlink": True,
        "createdAtMs": 0,
        "modifiedAtMs": 1234,
    }
    assert client.call("fs/getMetadata", {"path": str(workspace)})["isDirectory"]


def test_directories_are_made_listed_copied_and_removed(client: AppClient, workspace: Path) -> None:
    deep = workspace / "a" / "b"
    assert client.call("fs/createDirectory", {"path": str(deep)}) == {}
    (deep / "x").write_text("content")
    copy = {"sourcePath": str(workspace / "a"), "destinationPath": str(workspace / "c"), "recursive": True}
    assert client.call("fs/copy", copy) == {}
    assert (workspace / "c" / "b" / "x").read_text() == "content"
    listed = client.call("fs/readDirectory", {"path": str(workspace)})
    assert listed["entries"] == [{"fileName": name, "isDirectory": True, "isFile": False} for name in ("a", "c")]
    assert client.call("fs/remove", {"path": str(workspace / "a")}) == {}
    assert os.listdir(workspace) == ["c"]


def test_what_is_not_there_may_be_removed(client: AppClient, workspace: Path) -> None:
    assert client.call("fs/remove", {"path": str(workspace / "none")}) == {}


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
def test_what_the_system_refuses_is_internal(
    local: AppClient, workspace: Path, method: str, params: dict[str, Any], text: str
) -> None:
    (workspace / "file").touch()
    (workspace / "folder" / "inside").mkdir(parents=True)
    absolute = {
        name: str(workspace / value) if name.lower().endswith("path") else value for name, value in params.items()
    }
    error = local.failure(f"fs/{method}", absolute)
    assert error["code"] == INTERNAL_ERROR
    assert error["message"].startswith(text)


def test_what_makes_no_sense_is_the_fault_of_the_request(client: AppClient, workspace: Path) -> None:
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
        error = client.failure(f"fs/{method}", params)
        assert error["code"] == INVALID_REQUEST
        assert error["message"].startswith(text)


@pytest.mark.parametrize("path", ["relative/none", "", "~/none"])
def test_paths_are_absolute(client: AppClient, path: str) -> None:
    """Asked of methods that change nothing; the others go through the same check first."""
    for method, more in (("readFile", {}), ("getMetadata", {}), ("readDirectory", {}), ("watch", {"watchId": "w"})):
        error = client.failure(f"fs/{method}", {"path": path, **more})
        assert error["code"] == INVALID_REQUEST
        assert error["message"] == "Invalid request: AbsolutePathBuf deserialized without a base path"


# --- watching --------------------------------------------------------------------------------------------------------


def changed(client: AppClient, name: str) -> set[str]:
    notices = client.params_of("fs/changed")
    return {path for notice in notices if notice["watchId"] == name for path in notice["changedPaths"]}


@both_roads
def test_a_directory_is_watched_for_the_names_in_it(client: AppClient, workspace: Path) -> None:
    (workspace / "old").touch()
    watched = client.call("fs/watch", {"path": f"{workspace}/./", "watchId": "w"})
    assert watched == {"path": str(workspace)}
    (workspace / "new").touch()
    (workspace / "old").write_text("changed")
    client.until(lambda: changed(client, "w") >= {str(workspace / "new"), str(workspace / "old")})
    (workspace / "new").rename(workspace / "moved")
    client.until(lambda: str(workspace / "moved") in changed(client, "w"))


def test_a_file_is_watched_before_it_is_there(client: AppClient, workspace: Path) -> None:
    path = workspace / "deep" / "er" / "x"
    client.call("fs/watch", {"path": str(path), "watchId": "w"})
    path.parent.mkdir(parents=True)
    path.write_text("1")
    client.until(lambda: changed(client, "w") == {str(path)})
    client.told.clear()
    path.write_text("2")
    client.until(lambda: changed(client, "w") == {str(path)})
    client.told.clear()
    path.parent.rename(workspace / "away")
    client.until(lambda: changed(client, "w") == {str(path)})


def test_a_watch_tells_its_own_changes_only(client: AppClient, workspace: Path) -> None:
    for name in ("a", "b"):
        client.call("fs/watch", {"path": str(workspace / name), "watchId": name})
    (workspace / "a").touch()
    (workspace / "other").touch()
    (workspace / "b").touch()
    client.until(lambda: changed(client, "a") and changed(client, "b"))
    assert changed(client, "a") == {str(workspace / "a")}
    assert changed(client, "b") == {str(workspace / "b")}


def test_what_is_no_longer_watched_is_not_told(client: AppClient, workspace: Path) -> None:
    for name in ("gone", "kept"):
        client.call("fs/watch", {"path": str(workspace), "watchId": name})
    for _ in range(2):
        assert client.call("fs/unwatch", {"watchId": "gone"}) == {}
    (workspace / "x").touch()
    client.until(lambda: changed(client, "kept"))
    assert changed(client, "gone") == set()


def test_a_name_is_used_once_and_may_be_used_again(client: AppClient, workspace: Path) -> None:
    params = {"path": str(workspace), "watchId": "w"}
    client.call("fs/watch", params)
    error = client.failure("fs/watch", params)
    assert (error["code"], error["message"]) == (INVALID_REQUEST, "watchId already exists: w")
    client.call("fs/unwatch", {"watchId": "w"})
    client.call("fs/watch", params)


def test_watches_are_few_and_end_with_the_client(
    here: ServerHere, local: AppClient, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WATCHES", 2)
    for name in ("a", "b"):
        local.call("fs/watch", {"path": str(workspace), "watchId": name})
    assert "fs/unwatch" in local.failure("fs/watch", {"path": str(workspace), "watchId": "c"})["message"]
    (watches,) = here.watches(local).values()
    assert isinstance(watches, FileWatches)
    here.hang_up(local)
    assert len(watches) == 0


def test_the_last_unwatch_gives_everything_back(here: ServerHere, local: AppClient, workspace: Path) -> None:
    local.call("fs/watch", {"path": str(workspace), "watchId": "w"})
    local.call("fs/unwatch", {"watchId": "w"})
    assert here.watches(local) == {}


def test_many_changes_are_told_as_one(local: AppClient, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 3)
    local.call("fs/watch", {"path": str(workspace), "watchId": "w"})
    for number in range(9):
        (workspace / str(number)).touch()
    local.until(lambda: changed(local, "w"))
    assert changed(local, "w") == {str(workspace)}
