"""What the slash commands do, on a server in this process: each is run as if it were typed, and somebody chooses."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from prompt_toolkit.buffer import Buffer
from rich.console import RenderableType

from chat_stage import Stage, on_stage
from treadle.cli import (
    IMPLEMENT,
    MAX_LISTED,
    ChatMessage,
    ChatScreen,
    Choice,
    Entered,
    Option,
    Redaction,
    SlashActions,
    ThreadLibrary,
    message_of,
    painted,
    parse_command,
    threads_to_pick,
)
from treadle.cli.chat import slash_actions
from treadle.config import load_config
from treadle.own_python import treadle_command

pytestmark = pytest.mark.anyio

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\]8;[^\x1b]*\x1b\\)")


class Screen:
    """A screen that remembers what is printed, and a person who chooses what was planned."""

    colors = False
    width = 200

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.printed = ""
        self.answers: list[str | None] = []
        self.offered: list[list[str]] = []
        self.details: dict[str, str] = {}

    def print(self, *renderables: RenderableType) -> None:
        self.write(painted(renderables, self.width, colors=False))

    def write(self, text: str) -> None:
        self.printed += _SEQUENCE.sub("", text)

    def send(self, sequence: str) -> None:
        self.printed += f"<{sequence!r}>"

    async def choose(
        self, _: str, options: Sequence[Option], *, about: Iterable[RenderableType] = (), **__: Any
    ) -> Option | None:
        self.print(*about)
        self.offered.append([option.key for option in options])
        key = self.answers.pop(0)
        return next((option for option in options if option.key == key), None)

    async def pick(self, _: str, choices: Iterable[Choice], *, more: Any = None, **__: Any) -> Any:
        there = [*choices, *([choice async for choice in more] if more is not None else [])]
        self.details = {choice.detail: choice.label for choice in there if choice.detail}
        self.offered.append([choice.label for choice in there])
        label = self.answers.pop(0)
        return next((choice.value for choice in there if choice.label == label), None)

    async def ask_text(self, _: str) -> str | None:
        return self.answers.pop(0)


class Desk:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.session = stage.session
        self.model = stage.model
        self.screen = Screen()
        self.workspace = stage.harness.workspace
        config = load_config(stage.harness.home).config
        library = ThreadLibrary(self.session.client, Redaction([]))
        screen = cast("ChatScreen", self.screen)
        self.actions = SlashActions(self.session, screen, library, config.sandbox_policy)

    async def type(self, line: str, *answers: str | None) -> str:
        """Type a command, and choose these; gives what was printed."""
        entered = parse_command(line)
        assert isinstance(entered, Entered)
        self.screen.printed, self.screen.answers, self.screen.offered = "", [*answers], []
        await self.actions.run(entered)
        assert self.screen.answers == []
        return self.screen.printed

    async def turn(self, text: str, answer: str, number: int = 1) -> None:
        self.model.enqueue_assistant_message(answer)
        self.stage.say(text)
        await self.stage.done(number)


@asynccontextmanager
async def at_desk(tmp_path: Path, **settings: Any) -> AsyncIterator[Desk]:
    async with on_stage(tmp_path, **settings) as stage:
        yield Desk(stage)


async def test_undo_shows_what_becomes_of_files_and_does_it(tmp_path: Path) -> None:
    async with at_desk(tmp_path, sandbox_mode="workspace-write") as desk:
        assert "there is no turn" in await desk.type("/undo")
        await desk.turn("hello", "hi")
        desk.model.enqueue_custom_call("apply_patch", PATCH)
        await desk.turn("write it", "written", 2)
        file = desk.workspace / "new.txt"
        assert "remove new.txt" in await desk.type("/undo", "n")
        assert desk.screen.offered == [["y", "c", "n"]]
        assert file.exists()
        assert "1 file put back" in await desk.type("/undo", "y")
        assert not file.exists()
        assert desk.screen.buffer.text == "write it"
        assert "the turn has changed no files" in await desk.type("/undo", None)
        assert desk.screen.offered == [["c", "n"]]
        assert "files are as they were" in await desk.type("/undo", "c")
        assert desk.screen.buffer.text == "write it"  # a draft stays


async def test_undo_leaves_what_was_changed_since(tmp_path: Path) -> None:
    async with at_desk(tmp_path, sandbox_mode="workspace-write") as desk:
        desk.model.enqueue_custom_call("apply_patch", PATCH)
        await desk.turn("write it", "written")
        (desk.workspace / "new.txt").write_text("mine\n")
        shown = await desk.type("/undo", "n")
        assert "leave new.txt: " in shown
        assert desk.screen.offered == [["c", "n"]]
        assert (desk.workspace / "new.txt").read_text() == "mine\n"


async def test_undo_goes_back_beyond_commands_of_the_user(tmp_path: Path) -> None:
    async with at_desk(tmp_path, sandbox_mode="workspace-write") as desk:
        await desk.type("!true")
        await desk.stage.done()
        assert "there is no turn" in await desk.type("/undo")
        desk.model.enqueue_custom_call("apply_patch", PATCH)
        await desk.turn("write it", "written", 2)
        await desk.type("!cat new.txt")
        await desk.stage.done(3)
        shown = await desk.type("/undo", "y")
        assert "› write it" in shown
        assert "with 1 command that you have run since" in shown
        assert "1 file put back" in shown
        assert not (desk.workspace / "new.txt").exists()
        assert desk.screen.buffer.text == "write it"
        left = await desk.session.client.thread_turns_list({"threadId": desk.session.facts.id})
        assert len(left.data) == 1


async def test_undo_lists_no_more_files_than_a_screen_has_and_those_that_stay_last(tmp_path: Path) -> None:
    async with at_desk(tmp_path, sandbox_mode="workspace-write") as desk:
        added = "".join(f"*** Add File: f{number:02}.txt\n+x\n" for number in range(MAX_LISTED + 3))
        desk.model.enqueue_custom_call("apply_patch", f"*** Begin Patch\n{added}*** End Patch\n")
        await desk.turn("write them", "written")
        (desk.workspace / "f00.txt").write_text("mine\n")
        shown = await desk.type("/undo", "y")
        assert shown.count("remove f") == MAX_LISTED
        assert shown.index("… 2 more to put back") < shown.index("leave f00.txt: it was changed since")
        assert f"{MAX_LISTED + 2} files put back, 1 left" in shown
        assert [path.name for path in desk.workspace.glob("*.txt")] == ["f00.txt"]


async def test_a_thread_is_renamed_resumed_and_shown_as_it_was(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.turn("what is **wool**?", "Hair of sheep.")
        first = desk.session.facts.id
        assert "my wool" in await desk.type("/rename", "my wool")
        assert f"/resume {first[-8:]}" in await desk.type("/new")
        shown = await desk.type("/resume", "my wool")
        assert desk.session.facts.id == first
        assert "── turn 1" in shown
        assert "› what is **wool**?" in shown
        assert "Hair of sheep." in shown
        await desk.type("/new")
        await desk.type(f"/resume {first[-8:]}")
        assert desk.session.facts.id == first
        assert "there is no thread nobody" in await desk.type("/resume nobody")


async def test_of_a_long_thread_the_last_turns_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slash_actions, "LAST_TURNS", 1)
    async with at_desk(tmp_path) as desk:
        await desk.turn("one", "1")
        await desk.turn("two", "2", 2)
        first = desk.session.facts.id
        await desk.type("/new")
        shown = await desk.type(f"/resume {first}")
        assert "› one" not in shown
        assert "› two" in shown
        assert f"the last 1 of 2 turns; all: treadle threads show {first[-8:]}" in shown


async def test_threads_of_the_directory_come_first_and_their_previews_leave_out_what_was_piped_in(
    tmp_path: Path,
) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.turn("explain it\n\n<stdin>\ndata\n</stdin>", "Data.")
        client, here = desk.session.client, str(desk.workspace)
        elsewhere = (await client.thread_start({"cwd": str(tmp_path)})).thread.id
        await client.thread_set_name(elsewhere, "elsewhere")
        how = threads_to_pick(ThreadLibrary(client, Redaction([])), here)
        choices = [choice async for choice in how["more"]]
        assert [choice.label for choice in choices] == ["explain it", "elsewhere"]
        assert (await how["preview"](choices[0].value)).splitlines()[:2] == ["› explain it", "Data."]


async def test_an_end_that_several_have_lists_them(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.turn("one", "1")
        first = desk.session.facts.id
        await desk.session.enter(None)
        await desk.turn("two", "2", 2)
        shown = await desk.type(f"/resume {first[:6]}")
        assert "may be one of several threads" in shown
        assert first[-8:] in shown


async def test_the_answer_is_copied_and_the_thread_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    async with at_desk(tmp_path) as desk:
        assert "there is no answer yet" in await desk.type("/copy")
        assert "nothing was said yet" in await desk.type("/export")
        await desk.turn("a question", "An *answer*.")
        shown = await desk.type("/copy")
        assert "]52;c;QW4gKmFuc3dlcio=" not in shown  # with its full stop
        assert "]52;c;QW4gKmFuc3dlciou" in shown
        assert "12 characters" in shown
        target = desk.workspace / f"thread-{desk.session.facts.id[-8:]}.md"
        assert f"written: {target}" in (await desk.type("/export")).replace("\n", "")
        assert "An *answer*." in target.read_text()
        assert "is there already" in await desk.type("/export")
        await desk.type("/export other.json")
        assert json.loads((desk.workspace / "other.json").read_text())["id"] == desk.session.facts.id
        assert "does not tell the format" in await desk.type("/export other.doc")


async def test_plan_mode_begins_ends_and_its_plan_is_done(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        assert "plan mode" in await desk.type("/plan")
        desk.model.enqueue_assistant_message("<proposed_plan>\n- first this\n</proposed_plan>")
        await desk.type("/plan make one")
        await desk.stage.done()
        assert desk.session.facts.plans
        desk.screen.answers = ["n"]
        await desk.actions.offer_plan()
        assert desk.session.facts.plans
        desk.screen.answers = ["y"]
        desk.model.enqueue_assistant_message("Done.")
        await desk.actions.offer_plan()
        await desk.stage.done(2)
        assert not desk.session.facts.plans
        assert desk.model.requests()[-1].last_user_text == IMPLEMENT
        await desk.type("/plan")
        assert "off" in await desk.type("/plan off")


async def test_what_is_reviewed_is_chosen_from_lists(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        git = ("git", "-c", "user.name=Ada", "-c", "user.email=a@example.org")
        for words in (
            ("init", "-q", "-b", "main"),
            ("commit", "-q", "--allow-empty", "-m", "first"),
            ("branch", "old"),
        ):
            subprocess.run([*git, *words], cwd=desk.workspace, check=True)
        wanted = [
            ("/review", ["Review against a base branch", "old"], "old"),
            ("/review", ["Review a commit", "first"], "first"),
            ("/review", ["Review uncommitted changes"], "working tree"),
            ("/review", ["Custom review instructions", "look for races"], "look for races"),
            ("/review only races", [], "only races"),
        ]
        for number, (line, answers, asked) in enumerate(wanted, 1):
            desk.model.enqueue_assistant_message("Nothing to say.")
            await desk.type(line, *answers)
            assert (await desk.stage.done(number)).status == "completed"
            assert asked in json.dumps(desk.model.requests()[-1].input)
        await desk.type("/review", None)
        assert desk.screen.details == {"default": "Review uncommitted changes"}
        await desk.type("/review", "Review a commit", None)
        assert len(desk.model.requests()) == len(wanted)


async def test_a_command_of_the_user_runs_beside_the_conversation(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.type("!echo mine $((40 + 2)) > out.txt")
        await desk.stage.done()
        assert (desk.workspace / "out.txt").read_text() == "mine 42\n"
        assert desk.model.requests() == []
        assert "behind the !" in await desk.type("!")


async def test_permissions_and_models_are_chosen(tmp_path: Path) -> None:
    async with at_desk(tmp_path, sandbox_mode="read-only") as desk:
        await desk.type("/permissions", "Full Access")
        assert desk.screen.offered == [["Read Only", "Ask for approval", "Full Access"]]
        assert "mock-model, effort high" in await desk.type("/model", "mock-model", "high")
        await desk.turn("hello", "hi")
        await desk.type("/model", "mock-model", None)
        assert desk.screen.details["current"] == "high"
        facts = desk.session.facts
        assert (facts.sandbox, facts.approvals, facts.model) == ("danger-full-access", "never", "mock-model")
        await desk.type("/sandbox", "read-only")
        assert "nothing is none; there are" in await desk.type("/approvals nothing")
        assert await desk.type("/model", None) == ""


async def test_one_goes_on_on_another_machine_and_comes_back(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "below").mkdir(parents=True)
    server, *words = treadle_command("exec-server", "--listen", "stdio://")
    box = {"program": server, "args": words, "workdir": str(there)}
    async with at_desk(tmp_path, **{f"environments.box.{key}": value for key, value in box.items()}) as desk:

        async def turn(number: int) -> str:
            desk.model.enqueue_function_call("exec_command", {"cmd": "pwd"})
            await desk.turn("where?", "there", number)
            return str(desk.model.requests()[-1].input[-1]["output"])

        assert f"from the next message on: {there} on box" in await desk.type("/environment", "box")
        assert desk.screen.offered == [["local", "box"]]
        assert f"{there}\n" in await turn(1)
        assert f"{there} on box" in await desk.type("/status")
        await desk.type("/environment box below")
        assert f"{there}/below\n" in await turn(2)
        await desk.type("/environment local")
        assert f"{desk.workspace}\n" in await turn(3)
        assert "unknown turn environment id `nix`" in await desk.type("/environment nix")
        assert await desk.type("/environment", None) == ""


async def test_files_and_changes_are_those_of_the_other_machine(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    server, *words = treadle_command("exec-server", "--listen", "stdio://")
    box = {"program": server, "args": words, "workdir": str(there)}
    async with at_desk(tmp_path, **{f"environments.box.{key}": value for key, value in box.items()}) as desk:
        (desk.workspace / "here.txt").touch()
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=there, check=True, timeout=60)
        (there / "shot.png").write_text("new there\n")
        (there / "AGENTS.md").touch()
        assert "this is no git repository" in await desk.type("/diff")
        await desk.type("/environment", "box")
        assert "new there" in await desk.type("/diff")
        assert "AGENTS.md is here already" in await desk.type("/init")
        assert await desk.session.find_files("shot") == ["shot.png"]
        assert await desk.session.find_files("here.txt") == []
        facts, found = desk.session.facts, desk.session.found_files
        message = message_of("@shot.png @here.txt", facts.cwd, found=found)
        assert message == ChatMessage("shot.png @here.txt"), "the agent looks at a picture that is there"
        await desk.type("/environment local")
        assert await desk.session.find_files("here") == ["here.txt"]
        assert "this is no git repository" in await desk.type("/diff")


async def test_what_there_is_is_listed(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        assert "no MCP server is configured" in await desk.type("/mcp")
        assert "there are no skills" in await desk.type("/skills")
        assert "has begun no agents" in await desk.type("/agents")
        folder = desk.workspace / ".agents" / "skills" / "weave"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: weave\ndescription: how to weave\n---\nWith a loom.\n")
        await desk.session.client.skills_list({"cwds": [str(desk.workspace)], "forceReload": True})
        await desk.type("/skills", "weave")
        assert desk.screen.buffer.text == "$weave "


async def test_init_asks_for_a_file_unless_there_is_one(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        desk.model.enqueue_assistant_message("Written.")
        await desk.type("/init")
        await desk.stage.done()
        assert "AGENTS.md" in (desk.model.requests()[0].last_user_text or "")
        (desk.workspace / "AGENTS.md").write_text("mine")
        assert "is here already" in await desk.type("/init")
        assert len(desk.model.requests()) == 1


async def test_one_goes_to_an_agent_and_back(tmp_path: Path) -> None:
    async with at_desk(tmp_path, **{"features.multi_agent": True}) as desk:
        parent = desk.session.facts.id
        desk.model.enqueue_function_call("spawn_agent", {"message": "weave"}, call_id="c1")
        desk.model.enqueue_assistant_message("I do.")
        await desk.turn("have it woven", "I do.")
        [child] = (await desk.session.client.thread_list({"parentThreadId": parent})).data
        shown = await desk.type("/agents", child.agent_nickname)
        assert desk.session.facts.id == child.id
        assert "weave" in shown
        await desk.type("/agents", "back to the thread that began this one")
        assert desk.session.facts.id == parent


async def test_a_file_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        await desk.turn("a question", "An answer.")
        assert "there is no directory" in await desk.type("/export nowhere/thread.md")
