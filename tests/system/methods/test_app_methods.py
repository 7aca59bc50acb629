"""Settings, lists, skills and file search of the app-server, in process and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kit.async_app_client import ROADS, AsyncAppClient, InProcess, opened
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, OVERLOADED, RpcError
from treadle.protocol.app.search import FuzzyFileSearchParams, FuzzyFileSearchResult
from treadle.server.methods.fuzzy_file_search import MAX_SEARCHES, Search
from unit.protocol.app_traffic import DATA

pytestmark = pytest.mark.anyio

CONFIG = '# kept\nmodel = "first"\nmodel_provider = "offline"\n'
PROFILES = [":read-only", ":workspace", ":danger-full-access"]


@pytest.fixture
def home(home: Path) -> Path:
    (home / "config.toml").write_text(CONFIG)
    return home


@pytest.fixture
def workspace(workspace: Path) -> Path:
    (workspace / ".git").mkdir()
    return workspace


def edit(key: str, value: object, strategy: str = "replace") -> dict[str, object]:
    return {"keyPath": key, "value": value, "mergeStrategy": strategy}


# --- settings --------------------------------------------------------------------------------------------------------


async def test_settings_are_read_with_their_origin(client: AsyncAppClient, home: Path) -> None:
    plain = await client.request("config/read", {})
    assert plain["config"]["model"] == "first"
    assert "layers" not in plain
    assert plain["origins"]["model"]["name"] == {"type": "user", "file": str(home / "config.toml"), "profile": None}
    layered = await client.request("config/read", {"includeLayers": True})
    assert layered["layers"][0]["config"] == {"model": "first", "model_provider": "offline"}


async def test_settings_have_the_members_that_the_real_server_answers_with(client: AsyncAppClient) -> None:
    lines = (DATA / "app_transcripts" / "07_model_list.jsonl").read_text().splitlines()
    messages = [json.loads(line)["msg"] for line in lines]
    asked = next(message["id"] for message in messages if message.get("method") == "config/read")
    real = next(message["result"] for message in messages if message["id"] == asked and "result" in message)
    assert (await client.request("config/read", {})).keys() == real.keys()


async def test_a_write_is_in_force_and_keeps_the_rest(client: AsyncAppClient, home: Path) -> None:
    written = await client.request("config/value/write", edit("model", "second"))
    assert (written["status"], written["filePath"]) == ("ok", str(home / "config.toml"))
    assert (home / "config.toml").read_text() == CONFIG.replace("first", "second")
    layer = (await client.request("config/read", {"includeLayers": True}))["layers"][0]
    assert (layer["config"]["model"], layer["version"]) == ("second", written["version"])
    await client.request("config/value/write", edit("model", None) | {"expectedVersion": written["version"]})
    assert "second" not in (home / "config.toml").read_text()


async def test_a_file_that_somebody_edited_is_read_anew(client: AsyncAppClient, home: Path) -> None:
    await client.request("config/read", {})
    (home / "config.toml").write_text('model = "by hand"\n')
    assert (await client.request("config/read", {}))["config"]["model"] == "by hand"


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
async def test_a_refused_write_changes_nothing(
    client: AsyncAppClient, home: Path, change: dict[str, object], code: str
) -> None:
    error = await client.refusal("config/value/write", edit("model", "x") | change)
    assert (error.code, error.data) == (INVALID_REQUEST, {"config_write_error_code": code})
    assert (home / "config.toml").read_text() == CONFIG


async def test_of_a_batch_all_or_nothing_is_written(client: AsyncAppClient, home: Path) -> None:
    bad = [edit("model", "x"), edit("sandbox_mode", "nonsense")]
    error = await client.refusal("config/batchWrite", {"edits": bad})
    assert error.data == {"config_write_error_code": "configValidationError"}
    assert (home / "config.toml").read_text() == CONFIG
    good = [edit("model", "x"), edit("model_providers.a", {"name": "A", "base_url": "http://127.0.0.1:1"}, "upsert")]
    own = {"filePath": str(home / "config.toml"), "reloadUserConfig": True}
    await client.request("config/batchWrite", {"edits": good, **own})
    config = (await client.request("config/read", {}))["config"]
    assert (config["model"], config["model_providers"]["a"]["name"]) == ("x", "A")


async def test_too_many_edits_are_refused(local: InProcess) -> None:
    error = await local.refusal("config/batchWrite", {"edits": [edit("model", "x")] * 1001})
    assert "at most 1000" in error.message


@pytest.mark.parametrize("road", ROADS)
async def test_a_write_that_has_no_effect_says_so(road: str, home: Path, workspace: Path) -> None:
    async with opened(road, home, workspace, 'model="flag"') as client:
        written = await client.request("config/value/write", edit("model", "file"))
        assert written["status"] == "okOverridden"
        assert written["overriddenMetadata"]["effectiveValue"] == "flag"
        assert written["overriddenMetadata"]["overridingLayer"]["name"] == {"type": "sessionFlags"}
        assert (await client.request("config/value/write", edit("model", "flag")))["status"] == "ok"


async def test_a_broken_file_is_named(client: AsyncAppClient, home: Path) -> None:
    (home / "config.toml").write_text("model = \n")
    error = await client.refusal("config/read", {})
    assert error.code == INVALID_REQUEST
    assert f"{home / 'config.toml'}:1" in error.message


async def test_nothing_is_required(client: AsyncAppClient) -> None:
    assert (await client.request("configRequirements/read", None))["requirements"] is None


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_permission_profiles_come_in_pages(client: AsyncAppClient) -> None:
    whole = await client.request("permissionProfile/list", {})
    assert [profile["id"] for profile in whole["data"]] == PROFILES
    assert whole["nextCursor"] is None
    seen, cursor = [], None
    for _ in PROFILES:
        part = await client.request("permissionProfile/list", {"limit": 0, "cursor": cursor})
        seen += [profile["id"] for profile in part["data"]]
        cursor = part["nextCursor"]
    assert (seen, cursor) == (PROFILES, None)


@pytest.mark.parametrize("method", ["permissionProfile/list", "experimentalFeature/list", "mcpServerStatus/list"])
@pytest.mark.parametrize("cursor", ["x", "-1", "1_0", "99", "9" * 30])
async def test_a_cursor_of_somebody_else_is_refused(local: InProcess, method: str, cursor: str) -> None:
    error = await local.refusal(method, {"cursor": cursor})
    assert error.code == INVALID_REQUEST
    assert "cursor" in error.message


async def test_there_are_no_hooks_or_mcp_servers_and_no_flag_is_set_at_run_time(
    client: AsyncAppClient, workspace: Path
) -> None:
    empty: dict[str, Any] = {"data": [], "nextCursor": None}
    assert await client.request("mcpServerStatus/list", {}) == empty
    set_ = await client.request("experimentalFeature/enablement/set", {"enablement": {"anything": True}})
    assert set_ == {"enablement": {}}
    hooks = await client.request("hooks/list", {"cwds": ["/a", "/b"]})
    assert [entry["cwd"] for entry in hooks["data"]] == ["/a", "/b"]
    assert [entry["cwd"] for entry in (await client.request("hooks/list", {}))["data"]] == [str(workspace)]


async def test_too_many_directories_are_refused(local: InProcess) -> None:
    for method in ("hooks/list", "skills/list"):
        assert "at most 100" in (await local.refusal(method, {"cwds": ["/a"] * 101})).message


# --- skills ----------------------------------------------------------------------------------------------------------


def add_skill(root: Path, name: str, text: str) -> str:
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_text(text)
    return str(root / name / "SKILL.md")


async def test_skills_are_found_from_the_repository_down_and_in_the_home(
    client: AsyncAppClient, home: Path, workspace: Path, tmp_path: Path
) -> None:
    deep = workspace / "a" / "b"
    deep.mkdir(parents=True)
    top = add_skill(workspace / ".agents/skills", "top", "---\nname: one\ndescription: the first\n---\n")
    low = add_skill(deep / ".agents/skills", "low", "---\nname: one\ndescription: the second\n---\n")
    mine = add_skill(home / "skills", "mine", "---\ndescription: 'of: the user'\n---\n")
    add_skill(tmp_path / ".agents/skills", "outside", "---\nname: outside\ndescription: x\n---\n")
    bad = add_skill(deep / ".agents/skills", "bad", "no front matter\n")
    (entry,) = (await client.request("skills/list", {"cwds": [str(deep)]}))["data"]
    assert [(skill["name"], skill["path"], skill["scope"]) for skill in entry["skills"]] == [
        ("one", top, "repo"),
        ("one", low, "repo"),
        ("mine", mine, "user"),
    ]
    assert [skill["description"] for skill in entry["skills"]] == ["the first", "the second", "of: the user"]
    assert entry["errors"] == [{"path": bad, "message": "missing YAML frontmatter delimited by ---"}]


async def test_a_skill_is_turned_off_and_on(client: AsyncAppClient, home: Path, workspace: Path) -> None:
    first = add_skill(workspace / ".agents/skills", "one", "---\nname: one\ndescription: x\n---\n")
    add_skill(workspace / ".agents/skills", "two", "---\nname: two\ndescription: y\n---\n")

    async def enabled() -> list[bool]:
        (entry,) = (await client.request("skills/list", {}))["data"]
        return [skill["enabled"] for skill in entry["skills"]]

    assert await enabled() == [True, True]
    off = await client.request("skills/config/write", {"path": first, "enabled": False})
    assert off == {"effectiveEnabled": False}
    await client.request("skills/config/write", {"name": "two", "enabled": False})
    assert await enabled() == [False, False]
    await client.request("skills/config/write", {"path": first, "enabled": True})
    assert await enabled() == [True, False]
    assert (home / "config.toml").read_text().startswith(CONFIG)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"enabled": True}, INVALID_PARAMS),
        ({"enabled": True, "name": "a", "path": "/a"}, INVALID_PARAMS),
        ({"enabled": True, "path": "relative"}, INVALID_REQUEST),
    ],
)
async def test_a_skill_is_named_once_and_fully(local: InProcess, params: dict[str, object], code: int) -> None:
    assert (await local.refusal("skills/config/write", params)).code == code


# --- files by some letters -------------------------------------------------------------------------------------------


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("src/main.py", "src/domain.py", ".git/main", "node_modules/main.js", "out/main.o", "src/gen/main.c"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    (workspace / ".gitignore").write_text("# made\n/out/\n*.c\n")
    return workspace


async def test_files_are_found_best_first(client: AsyncAppClient, tree: Path) -> None:
    files = (await client.request("fuzzyFileSearch", {"query": "main", "roots": [str(tree)]}))["files"]
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


async def test_a_search_may_find_nothing(client: AsyncAppClient, tree: Path) -> None:
    for query, roots in (("", [str(tree)]), ("main", []), ("main", [str(tree / "none")]), ("qqq", [str(tree)])):
        assert await client.request("fuzzyFileSearch", {"query": query, "roots": roots}) == {"files": []}


async def test_a_root_may_be_relative_and_directories_are_found_too(client: AsyncAppClient, tree: Path) -> None:
    found = (await client.request("fuzzyFileSearch", {"query": "gen", "roots": ["src"]}))["files"][0]
    assert (found["root"], found["path"], found["match_type"]) == ("src", "gen", "directory")


async def test_at_most_fifty_files_are_answered(local: InProcess, workspace: Path) -> None:
    for number in range(60):
        (workspace / f"same{number:02}").touch()
    files = (await local.request("fuzzyFileSearch", {"query": "same", "roots": [str(workspace)]}))["files"]
    assert [found["path"] for found in files] == [f"same{number:02}" for number in range(50)]


async def test_a_hostile_repository_is_searched_all_the_same(client: AsyncAppClient, tree: Path) -> None:
    (tree / ".gitignore").write_text("*a" * 40 + "b\n[z-a]\n")
    (tree / ("a" * 200)).touch()
    os.mkfifo(tree / "src" / ".gitignore")
    files = (await client.request("fuzzyFileSearch", {"query": "main.py", "roots": [str(tree)]}))["files"]
    assert files[0]["path"] == "src/main.py"


async def test_a_newer_search_takes_the_place_of_an_older(local: InProcess, workspace: Path) -> None:
    older = Search(asyncio.ensure_future(_endless()))
    local.server.watches(local.client)["search for t"] = older
    (workspace / "here").touch()
    params = {"query": "here", "roots": [str(workspace)], "cancellationToken": "t"}
    assert len((await local.request("fuzzyFileSearch", params))["files"]) == 1
    assert older.cancelled()
    assert local.server.watches(local.client) == {}


async def test_a_search_that_was_replaced_is_answered_with_nothing(local: InProcess, workspace: Path) -> None:
    (workspace / "here").touch()
    params = {"query": "here", "roots": [str(workspace)], "cancellationToken": "t"}
    answers = await asyncio.gather(*(local.request("fuzzyFileSearch", params) for _ in range(2)))
    assert [len(answer["files"]) for answer in answers] == [0, 1]


async def test_a_client_searches_a_few_things_at_once(local: InProcess) -> None:
    running = [Search(asyncio.ensure_future(_endless())) for _ in range(MAX_SEARCHES)]
    local.server.watches(local.client).update({str(number): search for number, search in enumerate(running)})
    with pytest.raises(RpcError) as refused:
        await local.client.request("fuzzyFileSearch", FuzzyFileSearchParams(query="a", roots=()))
    assert refused.value.code == OVERLOADED
    local.client.close()
    assert all(search.cancelled() for search in running)


async def _endless() -> tuple[FuzzyFileSearchResult, ...]:
    await asyncio.Event().wait()
    return ()


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
async def test_bad_params_are_named(over_stdio: AsyncAppClient, method: str, params: object, word: str) -> None:
    error = await over_stdio.refusal(method, params)
    assert error.code == INVALID_REQUEST
    assert error.message.startswith("Invalid request: ")
    assert word in error.message


@pytest.fixture
async def over_stdio(home: Path, workspace: Path) -> AsyncIterator[AsyncAppClient]:
    async with opened("stdio", home, workspace) as client:
        yield client
