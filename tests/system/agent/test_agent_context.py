"""What the model is told before the conversation, and in which role."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from system.agent.scene import gate, roles, scene, shell
from treadle.agent import Instructions, Settings, read_instructions
from treadle.agent.turn import model_context
from treadle.config import PERSONALITIES, Config
from treadle.execution import LocalDisks, bounded_reads
from treadle.testing import RecordedRequest

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]


def _developer(request: RecordedRequest) -> str:
    return "\n".join(request.input_texts("developer"))


async def test_the_user_role_is_the_users(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"developer_instructions": "from the file"}) as stage:
        (stage.workspace / ".git").mkdir()
        (stage.workspace / "AGENTS.md").write_text("rules of the root")
        inner = stage.workspace / "inner"
        inner.mkdir()
        (inner / "AGENTS.md").write_text("rules of the inside")
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start(cwd=str(inner))
        await stage.run(thread, "hello")
        request = stage.model.single_request()
        assert request.input_texts("user") == ["hello"]
        assert roles(request)[-1] == "user"
        assert set(roles(request)[:-1]) == {"developer"}
        text = _developer(request)
        assert text.index("from the file") < text.index("rules of the root") < text.index("rules of the inside")
        assert f"<cwd>{inner}</cwd>" in text
        assert "instructions" not in request.json or not request.json["instructions"]


async def test_instructions_of_a_thread(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start(baseInstructions="be terse", developerInstructions="and kind")
        await stage.run(thread)
        told = "\n".join(stage.model.single_request().input_texts("developer"))
        first, second, *_ = (line for line in told.splitlines() if line)
        assert first == "be terse"
        assert second == "and kind"


async def test_files_that_change_between_turns_are_read_anew(tmp_path: Path) -> None:
    """What does not change is kept from turn to turn; a file may."""
    base = tmp_path / "base.md"
    base.write_text("be terse")
    async with scene(tmp_path, settings={"model_instructions_file": str(base)}) as stage:
        project = stage.workspace / "AGENTS.md"
        project.write_text("old rules")
        for _ in range(3):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        await stage.run(thread)
        base.write_text("be kind")
        project.write_text("new rules")
        await stage.run(thread)
        first, second, third = map(_developer, stage.model.requests())
        assert first == second
        assert "be terse" in first
        assert "old rules" in first
        assert third == first.replace("be terse", "be kind").replace("old rules", "new rules")


@pytest.mark.this_machine
async def test_project_files_are_read_again_when_they_look_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n")
    monkeypatch.setattr(bounded_reads, "disks", LocalDisks(str(table)))
    monkeypatch.setattr(bounded_reads, "SETTLED_NS", 0)
    reads: list[str] = []

    def read(settings: Settings, config: Config) -> Instructions:
        reads.append(threading.current_thread().name)
        return read_instructions(settings, config)

    monkeypatch.setattr(model_context, "read_instructions", read)
    async with scene(tmp_path.resolve()) as stage:
        project = stage.workspace / "AGENTS.md"
        project.write_text("old rules")
        threads = [await stage.start(), await stage.start()]
        reads.clear()
        for thread in [*threads, *threads]:
            stage.model.enqueue_assistant_message("a")
            await stage.run(thread)
        assert reads == [], "what was found when the thread was made is still so"
        project.write_text("new rules")
        for thread in [*threads, *threads]:
            stage.model.enqueue_assistant_message("a")
            await stage.run(thread)
        assert reads == [bounded_reads.READER], "once, in a thread"
        told = [_developer(request) for request in stage.model.requests()]
        assert ["old rules" in text for text in told] == [True] * 4 + [False] * 4
        assert ["new rules" in text for text in told] == [False] * 4 + [True] * 4


@pytest.mark.this_machine
async def test_project_files_on_a_disk_that_hangs_are_missing_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_out(*_: object) -> Instructions:
        raise TimeoutError  # as `read_in_thread` does

    monkeypatch.setattr(bounded_reads, "disks", LocalDisks(str(tmp_path / "none")))
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        monkeypatch.setattr(model_context, "read_instructions", time_out)
        stage.model.enqueue_assistant_message("a")
        turn = await stage.run(thread)
        assert turn["status"] == "completed"
        (warning,) = stage.client.told("warning")
        assert "AGENTS.md was not looked for" in warning["params"]["message"]


@pytest.mark.this_machine
async def test_a_project_file_that_leads_to_a_secret_is_left_out_with_a_warning(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        home = Path(stage.server.home)
        (home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-secret"}')
        repository = home.parent  # people have their settings in a repository
        (repository / ".git").mkdir()
        (repository / ".git" / "HEAD").write_text("ref: refs/heads/trunk\n")
        (home / "git").write_text('[remote "origin"]\nurl = sk-secret\n')
        (repository / ".git" / "config").symlink_to(home / "git")
        (repository / "AGENTS.md").symlink_to(home / "auth.json")
        (stage.workspace / "AGENTS.md").write_text("be kind")
        for _ in range(2):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        about = (await stage.client.request("thread/read", {"threadId": thread}))["thread"]["gitInfo"]
        assert (about["branch"], about["originUrl"]) == ("trunk", None)
        for _ in range(2):
            assert (await stage.run(thread))["status"] == "completed"
        assert all("be kind" in _developer(request) for request in stage.model.requests())
        assert all(b"sk-secret" not in request.body for request in stage.model.requests())
        (warning,) = stage.client.told("warning")
        told = f"{repository}/AGENTS.md is left out: commands of this thread may not read {home}/auth.json"
        assert warning["params"]["message"] == told


async def test_a_profile_with_other_limits_has_other_instructions(tmp_path: Path) -> None:
    """Of two threads in one directory, one may read what the other may not."""
    profile = '[permissions.blind]\nextends = ":read-only"\nfilesystem.":workspace_roots"."AGENTS.md" = "deny"\n'
    async with scene(tmp_path, extra_toml=profile) as stage:
        (stage.workspace / "AGENTS.md").write_text("be kind")
        for permissions in (":read-only", "blind", ":read-only"):
            stage.model.enqueue_assistant_message("a")
            await stage.run(await stage.start(permissions=permissions))
        assert ["be kind" in _developer(request) for request in stage.model.requests()] == [True, False, True]


@pytest.mark.this_machine
async def test_a_skill_and_a_picture_are_not_read_where_commands_may_not(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        home = Path(stage.server.home)
        (home / "skills").mkdir()
        (home / "skills" / "own.md").write_text("my own skill")
        (home / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n secret")
        (home / "auth.json").write_text("sk-secret")
        links = {"a.png": home / "secret.png", "s.md": home / "auth.json", "e.md": Path("/proc/self/environ")}
        for name, target in links.items():
            (stage.workspace / name).symlink_to(target)
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        skills = [stage.workspace / "s.md", stage.workspace / "e.md", home / "skills" / "own.md"]
        parts = [{"type": "skill", "name": "s", "path": str(path)} for path in skills]
        await stage.run(thread, input=[{"type": "localImage", "path": "a.png"}, *parts])
        texts = stage.model.single_request().input_texts("user")
        assert ["could not be read" in text for text in texts] == [True, True, True, False]
        assert "my own skill" in texts[-1]


async def test_instructions_on_a_disk_that_hangs_fail_the_turn_and_not_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, hangs = tmp_path / "base.md", threading.Event()
    base.write_text("be terse")
    monkeypatch.setattr(model_context, "read_in_thread", partial(bounded_reads.read_in_thread, seconds=0.2))
    async with scene(tmp_path, settings={"model_instructions_file": str(base)}) as stage:
        thread = await stage.start()
        monkeypatch.setattr(Config, "base_instructions", lambda config: hangs.wait() and "late")
        turn = await stage.run(thread)
        hangs.set()
        assert turn["status"] == "failed"
        assert "does not answer" in turn["error"]["message"]


async def test_the_context_is_that_of_the_turn_and_not_part_of_the_history(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "AGENTS.md").write_text("other rules")
        for _ in range(2):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        await stage.run(thread, cwd=str(elsewhere), sandboxPolicy={"type": "readOnly"})
        first, second = stage.model.requests()
        assert "other rules" not in _developer(first)
        assert "other rules" in _developer(second)
        assert _developer(second).count("<environment_context>") == 1
        assert f"<cwd>{stage.workspace}</cwd>" not in _developer(second)
        assert _developer(second) != _developer(first)


async def test_what_programs_say_is_not_said_by_the_user(tmp_path: Path) -> None:
    """A shell command and an interrupt are noted as developer messages."""
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await stage.client.request("thread/shellCommand", {"threadId": thread, "command": "echo from the shell"})
        await stage.client.wait_for("turn/completed")
        stage.model.enqueue_assistant_message("never", gate=gate())
        turn = await stage.begin(thread, "one")
        await stage.model.arrived(1)
        await stage.interrupt(thread, turn)
        await stage.end(turn)
        stage.model.enqueue_assistant_message("a")
        await stage.run(thread, "two")
        request = stage.model.requests()[-1]
        assert request.input_texts("user") == ["one", "two"]
        assert "from the shell" in _developer(request)
        assert "<turn_aborted>" in _developer(request)


async def test_the_history_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("exec_command", shell("echo x"), call_id="c1")
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread, "one")
        before = stage.model.requests()[-1].input
    async with scene(tmp_path) as stage:
        stage.model.enqueue_assistant_message("b")
        await stage.client.request("thread/resume", {"threadId": thread})
        await stage.run(thread, "two")
        after = stage.model.requests()[-1].input
        assert after[: len(before)] == before
        assert [item.get("role") for item in after[len(before) :]] == ["assistant", "user"]


async def test_injected_items_are_in_the_next_request(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "from before"}]}
        lonely = {"type": "function_call", "name": "x", "arguments": "{}", "call_id": "c9"}
        thread = await stage.start()
        await stage.client.request("thread/inject_items", {"threadId": thread, "items": [item]})
        stage.model.enqueue_assistant_message("a")
        await stage.run(thread, "now")
        assert stage.model.requests()[-1].input_texts("user") == ["from before", "now"]
        await stage.client.request("thread/inject_items", {"threadId": thread, "items": [lonely]})
        await stage.server.threads.unload(thread)
        await stage.client.request("thread/resume", {"threadId": thread})
        stage.model.enqueue_assistant_message("a")
        await stage.run(thread, "then")
        assert "c9" in stage.model.requests()[-1].tool_outputs


async def test_the_personality_of_a_thread(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"personality": "friendly"}) as stage:
        for _ in range(3):
            stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        await stage.run(thread)
        await stage.run(thread, personality="pragmatic")
        await stage.run(await stage.start(personality="none"))
        friendly, pragmatic, plain = map(_developer, stage.model.requests())
        assert PERSONALITIES["friendly"] in friendly
        assert PERSONALITIES["pragmatic"] in pragmatic
        assert PERSONALITIES["friendly"] not in pragmatic
        assert "<personality>" not in plain
        models = await stage.client.request("model/list", {})
        assert all(model["supportsPersonality"] for model in models["data"])
