"""Roles of sub-agents: where they are found, which counts, and what is wrong with others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.agent import BUILT_IN_ROLES, AgentRole, Roles, find_roles
from treadle.config import Config, load_config
from treadle.execution import ProjectFiles

WHOLE = 'description = "Looks"\ndeveloper_instructions = "Look."\n'


class Place:
    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.project = tmp_path / "project"
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def config(self, text: str = "") -> Config:
        (self.home / "config.toml").write_text(f'model_provider = "offline"\n{text}')
        return load_config(self.home, environ={}).config

    def roles(self, text: str = "", cwd: Path | None = None) -> Roles:
        return find_roles(ProjectFiles(str(cwd or self.project), str(self.home)), self.config(text))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _own(found: Roles) -> Mapping[str, AgentRole]:
    return {name: role for name, role in found.by_name.items() if role is not BUILT_IN_ROLES.get(name)}


def test_built_in(place: Place) -> None:
    found = place.roles()
    assert list(found.by_name) == ["default", "explorer", "worker", "reviewer"]
    assert found.warnings == ()
    assert [found.by_name[name].table.sandbox_mode for name in ("explorer", "reviewer")] == ["read-only"] * 2


def test_a_table_for_a_built_in_role_leaves_the_rest_of_it(place: Place) -> None:
    found = place.roles('[agents.explorer]\nmodel = "small"\n[agents.reviewer]\nsandbox_mode = "workspace-write"\n')
    explorer, built_in = found.by_name["explorer"], BUILT_IN_ROLES["explorer"]
    assert explorer.table.model == "small"
    assert (explorer.table.sandbox_mode, explorer.description) == ("read-only", built_in.description)
    assert found.by_name["reviewer"].table.sandbox_mode == "workspace-write"


def test_of_the_settings_with_a_file(place: Place) -> None:
    place.write(place.home / "more" / "r.toml", 'model = "small"\nname = "ignored"\nmodel_reasoning_effort = "low"\n')
    text = '[agents]\nmax_threads = 3\n[agents.critic]\ndescription = "Critic"\nconfig_file = "more/r.toml"\n'
    text += 'nickname_candidates = ["Rex"]\nmodel_reasoning_effort = "high"\n'
    found = place.roles(text)
    role = found.by_name["critic"]
    assert (role.description, role.table.model, role.table.model_reasoning_effort) == ("Critic", "small", "high")
    assert (role.own, role.table.nickname_candidates, found.warnings) == (True, ("Rex",), ())
    assert place.config(text).agents.most == 3


def test_files_of_the_home_and_of_the_project(place: Place) -> None:
    place.write(place.home / "agents" / "helper.toml", f'name = "assistant"\n{WHOLE}')
    front = "---\nname: tester\ndescription: Tests it\ntools: exec_command, view_image\nmodel: inherit\n---\nTest it.\n"
    place.write(place.project / ".agents" / "agents" / "t.md", front)
    place.write(place.project / "below" / ".codex" / "agents" / "deep.toml", WHOLE)
    found = place.roles(cwd=place.project / "below")
    assert found.warnings == ()
    own = _own(found)
    assert {name: role.own for name, role in own.items()} == {"assistant": True, "deep": False, "tester": False}
    assert own["tester"].table.tools == ("exec_command", "view_image")
    assert (own["tester"].table.developer_instructions, own["tester"].table.model) == ("Test it.", None)


def test_a_project_replaces_nothing(place: Place) -> None:
    """Its `explorer` could otherwise write, and its `mine` be without the limits that the user has set."""
    folder = place.project / ".codex" / "agents"
    paths = [place.write(folder / f"{name}.toml", WHOLE) for name in ("explorer", "mine")]
    found = place.roles('[agents.mine]\ndescription = "Mine"\nsandbox_mode = "read-only"\n')
    assert found.by_name["explorer"] is BUILT_IN_ROLES["explorer"]
    assert found.by_name["mine"].description == "Mine"
    assert found.warnings == tuple(
        f"{path} is left out: a project cannot replace the agent role `{path.stem}`" for path in paths
    )


@pytest.mark.parametrize(
    ("name", "text", "line", "problem"),
    [
        ("a.toml", 'description = "x"\n', 1, "it must define `developer_instructions`"),
        ("a.toml", f"{WHOLE}\nmodel = 3\n", 4, "Expected `str | null`, got `int` - at `$.model`"),
        ("a.toml", f'{WHOLE}sandbox_mode = "all"\n', 3, "Invalid enum value 'all' - at `$.sandbox_mode`"),
        ("a.toml", f'{WHOLE}model_provider = "p"\n', 3, "`model_provider` cannot be chosen by a project"),
        ("a.toml", f'{WHOLE}[mcp_servers.x]\ncommand = "rm"\n', 3, "Expected `array | null`, got `object`"),
        ("a.toml", f'{WHOLE}name = "no spaces"\n', 3, "its `name` must be"),
        ("a.toml", "description = \n", 1, "Invalid value (at line 1"),
        ("a.toml", "a = " + "[" * 5000, 1, ""),
        ("a.md", "no front matter", 1, "missing YAML frontmatter"),
        ("a.md", "---\ndescription: 'x\n---\nbody", 2, "opens a text with ' that is never closed"),
        ("a.md", "---\nname: x\n---\nbody", 1, "it must define `description`"),
    ],
)
def test_a_malformed_one_is_a_warning_with_its_line_and_the_others_count(
    place: Place, name: str, text: str, line: int, problem: str
) -> None:
    folder = place.project / ".codex" / "agents"
    path = place.write(folder / name, text)
    place.write(folder / "good.toml", WHOLE)
    found = place.roles()
    assert set(_own(found)) == {"good"}
    [warning] = found.warnings
    assert warning.startswith(f"{path}:{line}: malformed agent role: "), warning
    assert problem in warning


def test_one_that_leads_out_of_the_project_is_left_out(place: Place, tmp_path: Path) -> None:
    outside = place.write(tmp_path / "outside.toml", WHOLE)
    link = place.project / ".codex" / "agents" / "link.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    found = place.roles()
    assert _own(found) == {}
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith(f"{link} is left out: it leads to {outside}")


@settings(max_examples=60)
@given(data=st.binary(max_size=300), name=st.sampled_from(("a.toml", "a.md")))
def test_whatever_is_in_a_file_the_others_count(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    place = Place(tmp_path_factory.mktemp("place"))
    path = place.write(place.project / ".agents" / "agents" / name, "")
    path.write_bytes(data)
    place.write(path.parent / "good.toml", WHOLE)
    found = place.roles()
    assert "good" in found.by_name
    assert all(str(path) in warning for warning in found.warnings)


def test_of_a_project_only_so_many_count_and_warn(place: Place) -> None:
    folder = place.project / ".codex" / "agents"
    for number in range(100):
        place.write(folder / f"r{number:03}.toml", WHOLE)
    found = place.roles()
    assert len(_own(found)) == 32
    assert len(found.warnings) == 21
    assert found.warnings[-1] == "48 more agent roles are left out"


@pytest.mark.parametrize("name", ["a\\nb", "../../x", "The user says yes; " * 9, "\\u001b[2J"])
def test_names_that_people_are_shown_are_names(place: Place, name: str) -> None:
    place.write(place.project / ".codex" / "agents" / "a.toml", f'{WHOLE}nickname_candidates = ["{name}"]\n')
    found = place.roles()
    assert _own(found) == {}
    assert "a.toml:3: malformed agent role: `nickname_candidates` must be" in found.warnings[0]


def test_a_thread_that_is_in_no_project_has_none_of_its_roles(place: Place) -> None:
    place.write(place.project / ".codex" / "agents" / "scout.toml", WHOLE)
    project = ProjectFiles(str(place.project), str(place.home))
    assert "scout" in find_roles(project, place.config()).by_name
    assert "scout" not in find_roles(project, place.config(), of_project=False).by_name
