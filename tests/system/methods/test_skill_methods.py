"""`skills/*`: what clients hear of skills that change, of more roots, and of what a skill needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from kit.wire_client import Json
from treadle.errors import INVALID_REQUEST
from treadle.testing import AppServerHarness

METADATA = """\
interface:
  display_name: Repo Skill
  short_description: short one
  brand_color: "#00ff00"
  default_prompt: Use it
dependencies:
  tools:
    - type: mcp
      value: docsrv
      description: Docs
      transport: streamable_http
      url: http://127.0.0.1:9/mcp
"""


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture
def harness(harness: AppServerHarness) -> AppServerHarness:
    (harness.workspace / ".git").mkdir()
    return harness


def write(folder: Path, description: str = "x") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: {description}\n---\n")
    return str(folder / "SKILL.md")


def listed(client: AppClient, *, anew: bool = False) -> list[Json]:
    (entry,) = client.call("skills/list", {"forceReload": anew})["data"]
    skills: list[Json] = entry["skills"]
    return skills


def descriptions(client: AppClient) -> dict[str, str]:
    return {skill["name"]: skill["description"] for skill in listed(client)}


def changes(client: AppClient) -> int:
    return len(client.of("skills/changed"))


def test_a_skill_is_listed_as_it_was_recorded(client: AppClient, workspace: Path) -> None:
    path = write(workspace / ".agents/skills/repo-skill", "Repo scoped skill")
    metadata = Path(path).parent / "agents/openai.yaml"
    metadata.parent.mkdir()
    metadata.write_text(METADATA)
    (skill,) = listed(client)
    shown = {"displayName": "Repo Skill", "shortDescription": "short one", "brandColor": "#00ff00"}
    tool = {"type": "mcp", "value": "docsrv", "description": "Docs", "transport": "streamable_http"}
    assert {key: value for key, value in skill["interface"].items() if value is not None} == {
        **shown,
        "defaultPrompt": "Use it",
    }
    (needed,) = skill["dependencies"]["tools"]
    assert {key: value for key, value in needed.items() if value is not None} == {
        **tool,
        "url": "http://127.0.0.1:9/mcp",
    }
    assert (skill["path"], skill["scope"], skill["enabled"]) == (path, "repo", True)


def test_clients_hear_of_every_change_of_what_they_have_listed(client: AppClient, workspace: Path, user: Path) -> None:
    root = workspace / ".agents/skills"

    def wait_until(wanted: dict[str, str]) -> None:
        while True:
            seen = changes(client)
            if descriptions(client) == wanted:
                return
            client.until(lambda seen=seen: changes(client) > seen)  # type: ignore[misc]

    assert listed(client) == []
    write(root / "group/one")  # in folders that are not there yet
    wait_until({"one": "x"})
    write(root / "group/one", "other")
    wait_until({"one": "other"})
    write(user / ".agents/skills/two")
    wait_until({"one": "other", "two": "x"})
    shutil.rmtree(root / "group")
    wait_until({"two": "x"})


def test_one_client_hears_of_what_another_has_seen_first(here: ServerHere, workspace: Path) -> None:
    one, two = here.connect(experimentalApi=True), here.connect(experimentalApi=True)
    assert listed(one) == []
    write(workspace / ".agents/skills/one")
    assert [skill["name"] for skill in listed(two, anew=True)] == ["one"]
    one.wait_for("skills/changed")


def test_roots_of_a_client_replace_those_before_and_all_clients_hear_of_it(client: AppClient, tmp_path: Path) -> None:
    write(tmp_path / "first/one")
    write(tmp_path / "second/two")
    assert client.call("skills/extraRoots/set", {"extraRoots": [str(tmp_path / "first")]}) == {}
    assert changes(client) == 1, "before the answer"
    assert [(skill["name"], skill["scope"]) for skill in listed(client)] == [("one", "user")]
    client.call("skills/extraRoots/set", {"extraRoots": [str(tmp_path / "second")]})
    assert list(descriptions(client)) == ["two"]
    client.call("skills/extraRoots/set", {"extraRoots": []})
    assert listed(client) == []
    assert client.failure("skills/extraRoots/set", {"extraRoots": ["relative"]})["code"] == INVALID_REQUEST
    many = [f"/nowhere/{number}" for number in range(101)]
    assert "at most 100" in client.failure("skills/extraRoots/set", {"extraRoots": many})["message"]


def test_a_skill_that_was_turned_off_by_both_is_on_when_it_is_turned_on(client: AppClient, workspace: Path) -> None:
    path = write(workspace / ".agents/skills/one")
    for key in ({"name": "one"}, {"path": path}):
        client.call("skills/config/write", {**key, "enabled": False})
    assert changes(client) == 2
    assert not listed(client)[0]["enabled"]
    assert client.call("skills/config/write", {"name": "one", "enabled": True}) == {"effectiveEnabled": True}
    assert listed(client, anew=True)[0]["enabled"]
