"""Settings, lists, skills and file search of the app-server, in process and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from system.methods.conftest import ROADS, both_roads, opened
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, OVERLOADED
from treadle.protocol.app import FuzzyFileSearchResult
from treadle.server import Search
from treadle.server.methods.search_files import MAX_SEARCHES
from treadle.testing import AppServerHarness
from unit.protocol.app_traffic import DATA

CONFIG = '# kept\nmodel = "first"\nmodel_provider = "offline"\n'
PROFILES = [":read-only", ":workspace", ":danger-full-access"]


@pytest.fixture
def harness(harness: AppServerHarness) -> AppServerHarness:
    (harness.home / "config.toml").write_text(CONFIG)
    (harness.workspace / ".git").mkdir()
    return harness


def edit(key: str, value: object, strategy: str = "replace") -> dict[str, object]:
    return {"keyPath": key, "value": value, "mergeStrategy": strategy}


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_are_read_with_their_origin(client: AppClient, home: Path) -> None:
    plain = client.call("config/read", {})
    assert plain["config"]["model"] == "first"
    assert "layers" not in plain
    assert plain["origins"]["model"]["name"] == {"type": "user", "file": str(home / "config.toml"), "profile": None}
    layered = client.call("config/read", {"includeLayers": True})
    assert layered["layers"][0]["config"] == {"model": "first", "model_provider": "offline"}


def test_settings_have_the_members_that_the_real_server_answers_with(client: AppClient) -> None:
    lines = (DATA / "app_transcripts" / "07_model_list.jsonl").read_text().splitlines()
    messages = [json.loads(line)["msg"] for line in lines]
    asked = next(message["id"] for message in messages if message.get("method") == "config/read")
    real = next(message["result"] for message in messages if message["id"] == asked and "result" in message)
    assert client.call("config/read", {}).keys() == real.keys()


@both_roads
def test_a_write_is_in_force_and_keeps_the_rest(client: AppClient, home: Path) -> None:
    written = client.call("config/value/write", edit("model", "second"))
    assert (written["status"], written["filePath"]) == ("ok", str(home / "config.toml"))
    assert (home / "config.toml").read_text() == CONFIG.replace("first", "second")
    layer = client.call("config/read", {"includeLayers": True})["layers"][0]
    assert (layer["config"]["model"], layer["version"]) == ("second", written["version"])
    client.call("config/value/write", edit("model", None) | {"expectedVersion": written["version"]})
    assert "second" not in (home / "config.toml").read_text()


def test_a_file_that_somebody_edited_is_read_anew(client: AppClient, home: Path) -> None:
    client.call("config/read", {})
    (home / "config.toml").write_text('model = "by hand"\n')
    assert client.call("config/read", {})["config"]["model"] == "by hand"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"expectedVersion": "sha256:00"}, "configVersionConflict"),
        ({"value": 3}, "configValidationError"),
        ({"keyPath": "sandbox_mode"}, "configValidationError"),
        ({"keyPath": ""}, "configValidationError"),
        ({"keyPath": "a..b"}, "configValidationError"),
        ({"filePath": "other.toml"}, "configLayerReadonly"),
    ],
)
def test_a_refused_write_changes_nothing(client: AppClient, home: Path, change: dict[str, object], code: str) -> None:
    error = client.failure("config/value/write", edit("model", "x") | change)
    assert (error["code"], error["data"]) == (INVALID_REQUEST, {"config_write_error_code": code})
    assert (home / "config.toml").read_text() == CONFIG


def test_of_a_batch_all_or_nothing_is_written(client: AppClient, home: Path) -> None:
    bad = [edit("model", "x"), edit("sandbox_mode", "nonsense")]
    error = client.failure("config/batchWrite", {"edits": bad})
    assert error["data"] == {"config_write_error_code": "configValidationError"}
    assert (home / "config.toml").read_text() == CONFIG
    good = [edit("model", "x"), edit("model_providers.a", {"name": "A", "base_url": "http://127.0.0.1:1"}, "upsert")]
    own = {"filePath": str(home / "config.toml"), "reloadUserConfig": True}
    client.call("config/batchWrite", {"edits": good, **own})
    config = client.call("config/read", {})["config"]
    assert (config["model"], config["model_providers"]["a"]["name"]) == ("x", "A")


def test_too_many_edits_are_refused(local: AppClient) -> None:
    error = local.failure("config/batchWrite", {"edits": [edit("model", "x")] * 1001})
    assert "at most 1000" in error["message"]


@pytest.mark.parametrize("road", ROADS)
def test_a_write_that_has_no_effect_says_so(road: str, harness: AppServerHarness) -> None:
    with opened(road, harness, 'model="flag"') as client:
        written = client.call("config/value/write", edit("model", "file"))
        assert written["status"] == "okOverridden"
        assert written["overriddenMetadata"]["effectiveValue"] == "flag"
        assert written["overriddenMetadata"]["overridingLayer"]["name"] == {"type": "sessionFlags"}
        assert client.call("config/value/write", edit("model", "flag"))["status"] == "ok"


@both_roads
def test_a_broken_file_is_named(client: AppClient, home: Path) -> None:
    (home / "config.toml").write_text("model = \n")
    error = client.failure("config/read", {})
    assert error["code"] == INVALID_REQUEST
    assert f"{home / 'config.toml'}:1" in error["message"]


def test_nothing_is_required(client: AppClient) -> None:
    client.send({"id": "no params", "method": "configRequirements/read", "params": None})
    assert client.result_of("no params")["requirements"] is None


# --- lists -----------------------------------------------------------------------------------------------------------


def test_permission_profiles_come_in_pages(client: AppClient) -> None:
    whole = client.call("permissionProfile/list", {})
    assert [profile["id"] for profile in whole["data"]] == PROFILES
    assert whole["nextCursor"] is None
    seen, cursor = [], None
    for _ in PROFILES:
        part = client.call("permissionProfile/list", {"limit": 0, "cursor": cursor})
        seen += [profile["id"] for profile in part["data"]]
        cursor = part["nextCursor"]
    assert (seen, cursor) == (PROFILES, None)


@pytest.mark.parametrize("method", ["permissionProfile/list", "experimentalFeature/list", "mcpServerStatus/list"])
@pytest.mark.parametrize("cursor", ["x", "-1", "1_0", "99", "9" * 30])
def test_a_cursor_of_somebody_else_is_refused(local: AppClient, method: str, cursor: str) -> None:
    error = local.failure(method, {"cursor": cursor})
    assert error["code"] == INVALID_REQUEST
    assert "cursor" in error["message"]


def test_there_are_no_hooks_or_mcp_servers_and_no_flag_is_set_at_run_time(client: AppClient, workspace: Path) -> None:
    empty: dict[str, Any] = {"data": [], "nextCursor": None}
    assert client.call("mcpServerStatus/list", {}) == empty
    set_ = client.call("experimentalFeature/enablement/set", {"enablement": {"anything": True}})
    assert set_ == {"enablement": {}}
    hooks = client.call("hooks/list", {"cwds": ["/a", "/b"]})
    assert [entry["cwd"] for entry in hooks["data"]] == ["/a", "/b"]
    assert [entry["cwd"] for entry in client.call("hooks/list", {})["data"]] == [str(workspace)]


def test_too_many_directories_are_refused(local: AppClient) -> None:
    for method in ("hooks/list", "skills/list"):
        assert "at most 100" in local.failure(method, {"cwds": ["/a"] * 101})["message"]


# --- skills ----------------------------------------------------------------------------------------------------------


def add_skill(root: Path, name: str, text: str) -> str:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_text(text)
    return str(root / name / "SKILL.md")


def test_skills_are_found_from_the_repository_down_and_in_the_home(
    client: AppClient, home: Path, workspace: Path, tmp_path: Path
) -> None:
    deep = workspace / "a" / "b"
    deep.mkdir(parents=True)
    top = add_skill(workspace / ".agents/skills", "top", "---\nname: one\ndescription: the first\n---\n")
    low = add_skill(deep / ".agents/skills", "low", "---\nname: one\ndescription: the second\n---\n")
    mine = add_skill(home / "skills", "mine", "---\ndescription: 'of: the user'\n---\n")
    add_skill(tmp_path / ".agents/skills", "outside", "---\nname: outside\ndescription: x\n---\n")
    bad = add_skill(deep / ".agents/skills", "bad", "no front matter\n")
    (entry,) = client.call("skills/list", {"cwds": [str(deep)]})["data"]
    assert [(skill["name"], skill["path"], skill["scope"]) for skill in entry["skills"]] == [
        ("one", top, "repo"),
        ("one", low, "repo"),
        ("mine", mine, "user"),
    ]
    assert [skill["description"] for skill in entry["skills"]] == ["the first", "the second", "of: the user"]
    assert entry["errors"] == [{"path": bad, "message": "missing YAML frontmatter delimited by ---"}]


def test_a_skill_that_commands_may_not_read_is_left_out(client: AppClient, workspace: Path) -> None:
    path = add_skill(workspace / ".agents/skills", "one", "---\nname: one\ndescription: x\n---\n")
    rules = {":workspace_roots": {".agents": "deny"}}
    client.call("config/value/write", edit("permissions.blind", {"extends": ":read-only", "filesystem": rules}))
    client.call("config/value/write", edit("default_permissions", "blind"))
    (entry,) = client.call("skills/list", {})["data"]
    assert entry["skills"] == []
    assert entry["errors"] == [{"path": path, "message": f"commands of this thread may not read {path}"}]


@both_roads
def test_a_skill_is_turned_off_and_on(client: AppClient, home: Path, workspace: Path) -> None:
    first = add_skill(workspace / ".agents/skills", "one", "---\nname: one\ndescription: x\n---\n")
    add_skill(workspace / ".agents/skills", "two", "---\nname: two\ndescription: y\n---\n")

    def enabled() -> list[bool]:
        (entry,) = client.call("skills/list", {})["data"]
        return [skill["enabled"] for skill in entry["skills"]]

    assert enabled() == [True, True]
    off = client.call("skills/config/write", {"path": first, "enabled": False})
    assert off == {"effectiveEnabled": False}
    client.call("skills/config/write", {"name": "two", "enabled": False})
    assert enabled() == [False, False]
    client.call("skills/config/write", {"path": first, "enabled": True})
    assert enabled() == [True, False]
    assert (home / "config.toml").read_text().startswith(CONFIG)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"enabled": True}, INVALID_PARAMS),
        ({"enabled": True, "name": "a", "path": "/a"}, INVALID_PARAMS),
        ({"enabled": True, "path": "relative"}, INVALID_REQUEST),
    ],
)
def test_a_skill_is_named_once_and_fully(local: AppClient, params: dict[str, object], code: int) -> None:
    assert local.failure("skills/config/write", params)["code"] == code


# --- files by some letters -------------------------------------------------------------------------------------------


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("src/main.py", "src/domain.py", ".git/main", "node_modules/main.js", "out/main.o", "src/gen/main.c"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    (workspace / ".gitignore").write_text("# made\n/out/\n*.c\n")
    return workspace


@both_roads
def test_files_are_found_best_first(client: AppClient, tree: Path) -> None:
    files = client.call("fuzzyFileSearch", {"query": "main", "roots": [str(tree)]})["files"]
    assert files == [
        {
            "root": str(tree),
            "path": "src/main.py",
            "match_type": "file",
            "file_name": "main.py",
            "score": 109,
            "indices": [4, 5, 6, 7],
        },
        {
            "root": str(tree),
            "path": "src/domain.py",
            "match_type": "file",
            "file_name": "domain.py",
            "score": 76,
            "indices": [6, 7, 8, 9],
        },
    ]


def test_a_search_may_find_nothing(client: AppClient, tree: Path) -> None:
    for query, roots in (("", [str(tree)]), ("main", []), ("main", [str(tree / "none")]), ("qqq", [str(tree)])):
        assert client.call("fuzzyFileSearch", {"query": query, "roots": roots}) == {"files": []}


def test_a_root_may_be_relative_and_directories_are_found_too(client: AppClient, tree: Path) -> None:
    found = client.call("fuzzyFileSearch", {"query": "gen", "roots": ["src"]})["files"][0]
    assert (found["root"], found["path"], found["match_type"]) == ("src", "gen", "directory")


def test_at_most_fifty_files_are_answered(local: AppClient, workspace: Path) -> None:
    for number in range(60):
        (workspace / f"same{number:02}").touch()
    files = local.call("fuzzyFileSearch", {"query": "same", "roots": [str(workspace)]})["files"]
    assert [found["path"] for found in files] == [f"same{number:02}" for number in range(50)]


def test_a_hostile_repository_is_searched_all_the_same(client: AppClient, tree: Path) -> None:
    (tree / ".gitignore").write_text("*a" * 40 + "b\n[z-a]\n")
    (tree / ("a" * 200)).touch()
    os.mkfifo(tree / "src" / ".gitignore")
    files = client.call("fuzzyFileSearch", {"query": "main.py", "roots": [str(tree)]})["files"]
    assert files[0]["path"] == "src/main.py"


def test_a_newer_search_takes_the_place_of_an_older(here: ServerHere, local: AppClient, workspace: Path) -> None:
    older = here.call(_endless_search)
    here.watches(local)["search for t"] = older
    (workspace / "here").touch()
    params = {"query": "here", "roots": [str(workspace)], "cancellationToken": "t"}
    assert len(local.call("fuzzyFileSearch", params)["files"]) == 1
    assert older.cancelled()
    assert here.watches(local) == {}


def test_a_search_that_was_replaced_is_answered_with_nothing(
    here: ServerHere, local: AppClient, workspace: Path
) -> None:
    (workspace / "here").touch()
    params = {"query": "here", "roots": [str(workspace)], "cancellationToken": "t"}
    # From the server's own thread, so that it takes up both before it looks for anything.
    both = here.call(lambda: [local.request("fuzzyFileSearch", params) for _ in range(2)])
    assert [len(local.result_of(number)["files"]) for number in both] == [0, 1]


def test_a_client_searches_a_few_things_at_once(here: ServerHere, local: AppClient) -> None:
    running = {str(number): here.call(_endless_search) for number in range(MAX_SEARCHES)}
    here.watches(local).update(running)
    assert local.failure("fuzzyFileSearch", {"query": "a", "roots": []})["code"] == OVERLOADED
    here.hang_up(local)
    assert all(search.cancelled() for search in running.values())


def _endless_search() -> Search:
    async def endless() -> tuple[FuzzyFileSearchResult, ...]:
        await asyncio.Event().wait()
        return ()

    return Search(asyncio.ensure_future(endless()))


# --- params ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("config/read", None, "params"),
        ("config/value/write", {"keyPath": "model", "value": 1}, "mergeStrategy"),
        ("config/value/write", edit("model", "x", "nonsense"), "nonsense"),
        ("config/batchWrite", {}, "edits"),
        ("experimentalFeature/enablement/set", {"enablement": {"a": "yes"}}, "bool"),
        ("fuzzyFileSearch", {"query": "a"}, "roots"),
        ("skills/config/write", {}, "enabled"),
        ("skills/list", {"cwds": "/a"}, "array"),
        ("command/exec", {}, "command"),
        ("command/exec/write", {}, "processId"),
        ("command/exec/resize", {"processId": "a"}, "size"),
        ("command/exec/terminate", {}, "processId"),
        ("fs/readFile", {}, "path"),
        ("fs/writeFile", {"path": "/a"}, "dataBase64"),
        ("fs/createDirectory", {}, "path"),
        ("fs/getMetadata", {"path": 1}, "str"),
        ("fs/readDirectory", {}, "path"),
        ("fs/remove", {}, "path"),
        ("fs/copy", {"sourcePath": "/a"}, "destinationPath"),
        ("fs/watch", {"path": "/a"}, "watchId"),
        ("fs/unwatch", {}, "watchId"),
    ],
)
def test_bad_params_are_named(over_stdio: AppClient, method: str, params: object, word: str) -> None:
    over_stdio.send({"id": "bad", "method": method, "params": params})
    error = over_stdio.reply_to("bad")["error"]
    assert error["code"] == INVALID_REQUEST
    assert error["message"].startswith("Invalid request: ")
    assert word in error["message"]


@pytest.fixture(scope="module")
def over_stdio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    with AppServerHarness(tmp_path_factory.mktemp("app")) as harness, opened("stdio", harness) as client:
        yield client


def test_a_request_with_half_a_character_is_answered(harness: AppServerHarness) -> None:
    with opened("stdio", harness) as client:
        error = client.failure("fs/readFile", {"path": "/a\ud800b"})
        assert error["code"] == -32600
        assert "half a character" in error["message"]
