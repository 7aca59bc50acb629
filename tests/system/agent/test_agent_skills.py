"""Skills in a turn: their list, what a mention brings, and the MCP servers that one needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcp_stage import PROBE
from system.agent.scene import Scene, scene, shell
from treadle.testing import RecordedRequest

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one


def skill(root: Path, name: str, more: str = "", **files: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: when {name} is asked for\n{more}---\nDo {name}.\n"
    )
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


def listed(request: RecordedRequest) -> str:
    found = re.search(r"<skills_instructions>.*</skills_instructions>", developer(request), re.DOTALL)
    return "" if found is None else found[0]


def developer(request: RecordedRequest) -> str:
    return "\n".join(request.input_texts("developer"))


def warnings(stage: Scene) -> list[str]:
    return [message["params"]["message"] for message in stage.client.told("warning")]


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.mark.this_machine
@pytest.mark.every_wire
async def test_the_model_reads_which_skills_there_are_and_of_changes(tmp_path: Path, user: Path) -> None:
    async with scene(tmp_path) as stage:
        for _ in range(4):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        skill(user / ".agents/skills", "tidy")
        skill(
            user / ".agents/skills", "quiet", **{"agents/openai.yaml": "policy:\n  allow_implicit_invocation: false\n"}
        )
        folder = skill(stage.workspace / ".agents/skills", "build")
        await stage.run(thread)
        (folder / "SKILL.md").write_text("---\nname: build\ndescription: something else\n---\n")
        await stage.run(thread)
        await stage.client.request("skills/config/write", {"name": "tidy", "enabled": False})
        await stage.run(thread)
        first, second, third, fourth = map(listed, stage.model.requests())
        assert first == ""
        assert second.endswith(
            f"### Skill roots\n- `r0` = `{stage.workspace}/.agents/skills`\n- `r1` = `{user}/.agents/skills`\n"
            "### Available skills\n- build: when build is asked for (file: r0/build/SKILL.md)\n"
            "- tidy: when tidy is asked for (file: r1/tidy/SKILL.md)\n</skills_instructions>"
        )
        assert third == second.replace("when build is asked for", "something else")
        assert "tidy" not in fourth
        assert "build" in fourth


@pytest.mark.every_wire
async def test_a_mention_and_an_input_item_bring_the_whole_file(tmp_path: Path, user: Path) -> None:
    async with scene(tmp_path) as stage:
        build = skill(stage.workspace / ".agents/skills", "build")
        tidy = skill(user / ".agents/skills", "tidy")
        off = skill(user / ".agents/skills", "off")
        await stage.client.request("skills/config/write", {"path": str(off / "SKILL.md"), "enabled": False})
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        text = "use $build, then $tidy. $build and $HOME, $nosuch"
        given = [
            {"type": "text", "text": text},
            {"type": "skill", "name": "tidy", "path": str(tidy / "SKILL.md")},
            {"type": "skill", "name": "off", "path": str(off / "SKILL.md")},
            {"type": "skill", "name": "gone", "path": str(tmp_path / "nope/SKILL.md")},
        ]
        await stage.run(thread, input=given)
        said = "\n".join(stage.model.single_request().input_texts("user"))
        for folder in (tidy, build):
            path = folder / "SKILL.md"
            block = f"<skill>\n<name>{folder.name}</name>\n<path>{path}</path>\n{path.read_text()}\n</skill>"
            assert said.count(block) == 1
        assert "Do off." not in said
        about_off, about_gone = warnings(stage)
        assert about_off == "the skill `off` is turned off; turn it on with: treadle skills enable off"
        assert about_gone == f"the skill `gone` could not be read: {tmp_path}/nope/SKILL.md: there is no such file"


@pytest.mark.this_machine
async def test_a_list_that_is_too_long_is_cut_with_a_warning(tmp_path: Path, user: Path) -> None:
    async with scene(tmp_path, settings={"skills.max_context_tokens": 200}) as stage:
        for number in range(50):
            skill(user / ".agents/skills", f"s{number:02}")
        skill(stage.workspace / ".agents/skills", "near")
        stage.model.enqueue_assistant_message("a")
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        await stage.run(thread, "$s49 please")
        request, second = stage.model.requests()
        text = listed(request)
        assert text.partition("### Available skills\n")[2].startswith("- near: ")
        assert len(text.partition("### Skill roots\n")[2]) < 4 * 200 + 150
        (warning,) = warnings(stage)
        assert "of 51 skills do not fit" in warning
        assert "Do s49." in "\n".join(second.input_texts("user")), "it can be used all the same"


async def test_the_list_can_be_left_out(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        skill(stage.workspace / ".agents/skills", "build")
        stage.model.enqueue_assistant_message("a")
        await stage.run(await stage.start(config={"skills.include_instructions": False}))
        assert listed(stage.model.single_request()) == ""


async def test_the_scripts_of_a_skill_run_in_the_sandbox_of_the_thread(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        folder = skill(stage.workspace / ".agents/skills", "build", **{"scripts/run.sh": "echo ran; echo x > made\n"})
        stage.model.enqueue_function_call("exec_command", shell(f"sh {folder}/scripts/run.sh; cat {folder}/SKILL.md"))
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(sandbox="read-only", approvalPolicy="never")
        await stage.run(thread, "$build")
        output = str(stage.model.requests()[-1].json)
        assert "ran" in output
        assert "Do build." in output
        assert not (stage.workspace / "made").exists()


def needs_probe(folder: Path) -> str:
    """Metadata of a skill that needs the probe."""
    command = " ".join(PROBE)
    return (
        "dependencies:\n  tools:\n    - type: mcp\n      value: probe\n      description: what it is for\n"
        f'      command: "touch {folder}/started"\n    - type: mcp\n      value: real\n      command: {command!r}\n'
    )


async def test_the_servers_that_a_skill_of_the_user_needs_are_started_when_it_is_used(
    tmp_path: Path, user: Path
) -> None:
    async with scene(tmp_path) as stage:
        skill(user / ".agents/skills", "tidy", **{"agents/openai.yaml": needs_probe(tmp_path)})
        for _ in range(3):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        assert not (tmp_path / "started").exists(), "it was only listed"
        await stage.run(thread, "$tidy")
        await stage.run(thread)
        assert (tmp_path / "started").exists()
        tools = ["real" in str(request.json.get("tools")) for request in stage.model.requests()]
        assert tools == [False, True, True]


async def test_what_a_project_says_of_a_server_starts_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        skill(stage.workspace / ".agents/skills", "tidy", **{"agents/openai.yaml": needs_probe(tmp_path)})
        stage.model.enqueue_assistant_message("a")
        await stage.run(await stage.start(), "$tidy")
        assert not (tmp_path / "started").exists()
        first, second = warnings(stage)
        assert first == (
            "the skill `tidy` of this project needs the MCP server `probe`, which you do not have; "
            f"if you trust it, type: treadle mcp add probe -- touch {tmp_path}/started"
        )
        assert "`real`" in second
        assert "Do tidy." in "\n".join(stage.model.single_request().input_texts("user"))
