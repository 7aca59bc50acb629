"""Turns and commands under permission profiles: what they can and cannot do, and how a profile is chosen and kept."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.sandboxes import usable
from system.agent.scene import REPLY, Json, Scene, patch, scene, shell
from system.test_sandbox import CONNECT
from treadle.client import AsyncCodex
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.execution import Mechanism
from treadle.testing import AppServerHarness, ToolCall

pytestmark = pytest.mark.anyio

ELSEWHERE = os.environ.get("TREADLE_TEST_ENVIRONMENT", "local") != "local"
PATTERNS = pytest.mark.own_executor("a profile with a pattern is refused for other executors")
PYTHON = os.path.realpath(sys.executable)
UPDATE = "thread/settings/update"
UPDATED = "thread/settings/updated"
READ_ONLY: Json = {"type": "readOnly", "networkAccess": False}
WORKSPACE: Json = {
    "type": "workspaceWrite",
    "writableRoots": [],
    "networkAccess": False,
    "excludeTmpdirEnvVar": False,
    "excludeSlashTmp": False,
}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """A workspace with something in it, and a place beside it."""
    for name in ("workspace/docs", "workspace/secret", "workspace/src", "beside", "extra"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("workspace/docs/page", "workspace/secret/key", "workspace/src/a.env", "beside/file"):
        (tmp_path / name).write_text("was here")
    return tmp_path


def tried(root: Path, port: int) -> dict[str, str]:
    """Deeds by name, as lines of shell."""
    return {
        "write": "echo x > made",
        "write docs": "echo x > docs/made",
        "write beside": f"echo x > {root}/beside/made",
        "write extra": f"echo x > {root}/extra/made",
        "read beside": f"cat {root}/beside/file",
        "read secret": "cat secret/key",
        "read env": "cat src/a.env",
        **({} if ELSEWHERE else {"read home": f"cat {root}/home/config.toml"}),  # another machine hides its own
        "connect": f'{PYTHON} -I -S -c "{CONNECT}" {port}',
    }


async def run(stage: Scene, thread: str, *calls: ToolCall, **params: Any) -> list[str]:
    """A turn with these calls that nobody is asked about; what the model is told of each."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    await stage.run(thread, approvalPolicy="never", **params)
    return list(stage.model.requests()[-1].tool_outputs.values())[-len(calls) :]


async def done(stage: Scene, thread: str, deeds: dict[str, str], **params: Any) -> set[str]:
    """Which of the deeds one command could do."""
    script = "\n".join(f"({line}) >/dev/null 2>&1 && echo 'did <{name}>'" for name, line in deeds.items())
    (told,) = await run(stage, thread, ToolCall("exec_command", shell(script), None), **params)
    return set(re.findall("did <(.*)>", told))


async def profile_of(stage: Scene, thread: str) -> Json:
    """What a client that joins is told."""
    answer = await stage.client.request("thread/resume", {"threadId": thread})
    return {"sandbox": answer["sandbox"], "profile": answer["activePermissionProfile"]}


# --- what each can do ------------------------------------------------------------------------------------------------

EVERYTHING = {
    "write",
    "write docs",
    "write beside",
    "write extra",
    "read beside",
    "read secret",
    "read env",
    "connect",
    *(() if ELSEWHERE else ("read home",)),
}
READS = {"read beside", "read secret", "read env"}


@pytest.mark.this_machine  # whose TMPDIR it sets
@pytest.mark.parametrize(
    ("profile", "can"),
    [
        (":read-only", READS),
        # The folder of the test is the temporary directory, which this one can write.
        pytest.param(
            ":workspace", EVERYTHING - {"connect", "read home"}, marks=pytest.mark.own_executor("temporary directories")
        ),
        (":danger-full-access", EVERYTHING),
    ],
)
async def test_a_turn_in_a_built_in_profile(
    ground: Path, port: int, monkeypatch: pytest.MonkeyPatch, profile: str, can: set[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(ground))
    if profile == ":workspace":
        monkeypatch.setenv("TREADLE_SANDBOX", usable("bubblewrap"))  # the home is in what can be written
    async with scene(ground) as stage:
        thread = await stage.start(permissions=profile)
        assert (await profile_of(stage, thread))["profile"] == {"id": profile, "extends": None}
        assert await done(stage, thread, tried(ground, port)) == can


def mine(root: Path, **members: str) -> str:
    """A profile that takes from the workspace and gives beside it. Without /tmp, where the test's folder is."""
    return f"""
[permissions.mine]
extends = ":read-only"
description = "Mine"
{members.get("top", "")}
[permissions.mine.network]
enabled = true
[permissions.mine.filesystem]
"{root}/extra" = "write"
"{root}/beside/file" = "deny"
[permissions.mine.filesystem.":workspace_roots"]
"." = "write"
"docs" = "read"
"secret" = "deny"
"**/*.env" = "deny"
"""


@PATTERNS
async def test_a_turn_in_a_profile_of_the_user(ground: Path, port: int, bubblewrap: Mechanism) -> None:
    async with scene(ground, extra_toml=mine(ground)) as stage:
        thread = await stage.start(permissions="mine")
        assert await done(stage, thread, tried(ground, port)) == {"write", "write extra", "connect"}
        assert (ground / "beside/file").read_text() == "was here"
        assert sorted(os.listdir(ground / "workspace/docs")) == ["page"]
        # What is denied can be neither moved away nor replaced, and git keeps its orders.
        tricks = {
            "move": "mv secret s && cat s/key",
            "move env": "mv src s2 && cat s2/a.env",
            "replace": "rm -rf secret && mkdir secret",
            "hook": "mkdir -p .git/hooks && echo x > .git/hooks/post-commit",
        }
        assert await done(stage, thread, tricks) == set()


@PATTERNS
async def test_patches_go_by_the_same_rules(ground: Path, bubblewrap: Mechanism) -> None:
    async with scene(ground, extra_toml=mine(ground)) as stage:
        thread = await stage.start(permissions="mine")
        calls = [
            ToolCall("apply_patch", {"input": patch(f"*** Add File: {name}", "+x")}, None)
            for name in ("docs/made", "secret/made", "made")
        ]
        await run(stage, thread, *calls)
        assert not (ground / "workspace/docs/made").exists()
        assert not (ground / "workspace/secret/made").exists()
        assert (ground / "workspace/made").read_text() == "x\n"


async def test_a_profile_that_opens_little_can_be_held_by_both_mechanisms(
    ground: Path, port: int, mechanism: Mechanism
) -> None:
    toml = f"""
[permissions.little.filesystem]
":minimal" = "read"
":workspace_roots" = "read"
"{ground}/extra" = "write"
"{os.path.dirname(os.path.dirname(PYTHON))}" = "read"
"""
    async with scene(ground, extra_toml=toml) as stage:
        thread = await stage.start(permissions="little")
        assert await done(stage, thread, tried(ground, port)) == {"write extra", "read secret", "read env"}


@pytest.mark.this_machine
async def test_what_the_machine_cannot_hold_is_refused_when_it_is_chosen(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_SANDBOX", usable("landlock"))
    async with scene(ground, extra_toml=mine(ground)) as stage:
        with pytest.raises(RpcError, match="install bubblewrap"):
            await stage.start(permissions="mine")
        thread = await stage.start(permissions=":read-only")
        choices: list[tuple[str, Json]] = [(UPDATE, {}), ("turn/start", {"input": []})]
        for method, params in choices:
            with pytest.raises(RpcError, match="install bubblewrap") as caught:
                await stage.client.request(method, {"threadId": thread, "permissions": "mine", **params})
            assert caught.value.code == INVALID_REQUEST
        assert (await profile_of(stage, thread))["profile"] == {"id": ":read-only", "extends": None}


# --- choosing --------------------------------------------------------------------------------------------------------


async def test_a_client_changes_the_profile_and_everyone_is_told_after_the_answer(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(permissions=":read-only")
        given = {"approvalPolicy": "on-request", "approvalsReviewer": "user", "permissions": ":workspace"}
        await stage.client.request(UPDATE, {"threadId": thread, **given})
        told = (await stage.client.wait_for(UPDATED))["params"]["threadSettings"]
        assert told["sandboxPolicy"] == WORKSPACE
        assert told["activePermissionProfile"] == {"id": ":workspace", "extends": None}
        assert (told["approvalPolicy"], told["approvalsReviewer"]) == ("on-request", "user")
        methods = [message["method"] for message in stage.client.messages]
        assert methods[-2:] == [REPLY, UPDATED]


async def test_a_sandbox_policy_afterwards_is_no_profile(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(permissions=":workspace")
        await stage.client.request(UPDATE, {"threadId": thread, "sandboxPolicy": WORKSPACE})
        assert await profile_of(stage, thread) == {"sandbox": WORKSPACE, "profile": None}
        await stage.run(thread, permissions=":read-only")
        assert (await profile_of(stage, thread))["profile"] == {"id": ":read-only", "extends": None}
        fork = await stage.client.request("thread/fork", {"threadId": thread})
        assert (fork["sandbox"], fork["activePermissionProfile"]["id"]) == (READ_ONLY, ":read-only")
        fork = await stage.client.request("thread/fork", {"threadId": thread, "permissions": ":workspace"})
        assert (fork["sandbox"], fork["activePermissionProfile"]["id"]) == (WORKSPACE, ":workspace")
        fork = await stage.client.request("thread/fork", {"threadId": thread, "sandbox": "read-only"})
        assert fork["activePermissionProfile"] is None


async def test_what_begins_without_a_word_has_the_profile_of_the_configuration(
    ground: Path, bubblewrap: Mechanism
) -> None:
    toml = f'[profiles.p]\ndefault_permissions = "mine"\n{mine(ground)}'
    async with scene(ground, settings={"profile": "p"}, extra_toml=toml) as stage:
        answer = await stage.client.request("thread/start", {})
        assert answer["activePermissionProfile"] == {"id": "mine", "extends": ":read-only"}
        assert answer["sandbox"]["writableRoots"] == [f"{ground}/extra"]
        answer = await stage.client.request("thread/start", {"sandbox": "read-only"})
        assert (answer["sandbox"], answer["activePermissionProfile"]) == (READ_ONLY, None)


async def test_two_ways_at_once_and_unknown_names_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(permissions=":read-only")
        both = "`permissions` cannot be combined with"
        wrong: list[tuple[str, Json, str]] = [
            ("thread/start", {"permissions": ":workspace", "sandbox": "read-only"}, f"{both} `sandbox`"),
            ("thread/fork", {"permissions": ":workspace", "sandbox": "read-only"}, f"{both} `sandbox`"),
            (UPDATE, {"permissions": ":workspace", "sandboxPolicy": READ_ONLY}, f"{both} `sandboxPolicy`"),
            ("turn/start", {"input": [], "permissions": ":workspace", "sandboxPolicy": READ_ONLY}, both),
            (UPDATE, {"permissions": "nobody"}, "`nobody` is no permission profile"),
            ("turn/start", {"input": [], "permissions": ":nothing"}, "there is no built-in profile `:nothing`"),
            ("command/exec", {"command": ["true"], "permissionProfile": "nobody"}, "is no permission profile"),
            (
                "command/exec",
                {"command": ["true"], "permissionProfile": ":workspace", "sandboxPolicy": READ_ONLY},
                "`permissionProfile` cannot be combined with `sandboxPolicy`",
            ),
        ]
        for method, params, words in wrong:
            with pytest.raises(RpcError) as caught:
                await stage.client.request(method, {"threadId": thread, **params})
            assert caught.value.code == INVALID_REQUEST
            assert words in caught.value.message
        assert (await profile_of(stage, thread))["profile"] == {"id": ":read-only", "extends": None}


async def test_a_profile_is_part_of_the_experimental_interface(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.harness.connect(server=stage.server, experimental=False) as plain:
        for method, params in (
            ("thread/start", {"permissions": ":workspace"}),
            ("command/exec", {"command": ["true"], "permissionProfile": ":workspace"}),
        ):
            with pytest.raises(RpcError, match="requires experimentalApi capability"):
                await plain.request(method, params)


async def test_profiles_are_listed(ground: Path) -> None:
    async with scene(ground, extra_toml=mine(ground) + '\n[permissions.bad]\nextends = "gone"\n') as stage:
        answer = await stage.client.request("permissionProfile/list", {"cwd": str(ground)})
        assert [(found["id"], found["description"], found["allowed"]) for found in answer["data"]] == [
            (":read-only", None, True),
            (":workspace", None, True),
            (":danger-full-access", None, True),
            ("bad", None, False),
            ("mine", "Mine", True),
        ]
        assert answer["nextCursor"] is None


async def test_a_command_outside_of_a_thread_has_a_profile(ground: Path, bubblewrap: Mechanism) -> None:
    async with scene(ground, extra_toml=mine(ground)) as stage:
        script = "cat secret/key; echo x > docs/made; echo x > made; echo x > ../beside/made"
        given = {"command": ["sh", "-c", script], "cwd": str(ground / "workspace")}
        await stage.client.request("command/exec", {**given, "permissionProfile": ":read-only"})
        assert not (ground / "workspace/made").exists()
        answer = await stage.client.request("command/exec", {**given, "permissionProfile": "mine"})
        assert "was here" not in answer["stdout"]
        assert (ground / "workspace/made").exists()
        assert not (ground / "workspace/docs/made").exists()
        assert not (ground / "beside/made").exists()


async def test_the_sdk_chooses_profiles(tmp_path: Path) -> None:
    def granted(answer: Any) -> str | None:
        profile = answer.active_permission_profile
        return None if profile is None else str(profile.id)

    with AppServerHarness(tmp_path) as harness:
        async with AsyncCodex(config=harness.codex_config()) as codex:
            thread = await codex.thread_start(permissions=":workspace")
            client = codex._client
            assert granted(await client.thread_resume(thread.id)) == ":workspace"
            harness.model.enqueue_assistant_message("done")
            await thread.run("go", permissions=":read-only")
            assert granted(await client.thread_resume(thread.id)) == ":read-only"
            fork = await codex.thread_fork(thread.id, permissions=":danger-full-access")
            assert granted(await client.thread_resume(fork.id)) == ":danger-full-access"
            listed = await client.permission_profile_list()
            assert [profile.id for profile in listed.data] == [":read-only", ":workspace", ":danger-full-access"]


# --- keeping ---------------------------------------------------------------------------------------------------------


async def restarted(harness: AppServerHarness, thread: str) -> tuple[Json, list[str]]:
    """What another server says of a thread: settings, and warnings about it."""
    async with harness.connect() as client:
        answer = await client.request("thread/resume", {"threadId": thread})
        await client.wait_for("thread/goal/cleared")
        warnings = [message["params"]["message"] for message in client.told("warning")]
    return answer, warnings


async def test_a_profile_stays_with_its_thread(ground: Path, bubblewrap: Mechanism) -> None:
    async with scene(ground, extra_toml=mine(ground)) as stage:
        thread = await stage.start()
        await stage.client.request(UPDATE, {"threadId": thread, "permissions": "mine"})
        before = await profile_of(stage, thread)
        assert before["profile"] == {"id": "mine", "extends": ":read-only"}
    answer, warnings = await restarted(stage.harness, thread)
    assert {"sandbox": answer["sandbox"], "profile": answer["activePermissionProfile"]} == before
    assert warnings == []


@PATTERNS
@pytest.mark.parametrize("change", ["gone", "broken"])
async def test_without_its_definition_a_thread_reads_what_it_could_and_no_more(
    ground: Path, port: int, bubblewrap: Mechanism, change: str
) -> None:
    with AppServerHarness(ground, extra_toml=mine(ground)) as harness:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {"permissions": "mine"}))["thread"]["id"]
        config = harness.home / "config.toml"
        text = config.read_text()
        config.write_text(
            text[: text.index("[permissions")] if change == "gone" else text.replace(":read-only", "gone")
        )
        answer, (warning,) = await restarted(harness, thread)
        assert (answer["sandbox"], answer["activePermissionProfile"]) == (READ_ONLY, None)
        assert "The permission profile `mine` of this thread cannot be used any more" in warning
        assert (await restarted(harness, thread))[1] == []  # it was said, and is settled
        async with harness.server() as server, harness.connect(server=server) as client:
            stage = Scene(harness, server, client)
            await client.request("thread/resume", {"threadId": thread})
            assert await done(stage, thread, tried(ground, port)) == set()  # what it was denied is still denied
            assert await done(stage, thread, {"read": "cat docs/page"}) == {"read"}


async def test_a_definition_that_changes_holds_from_the_next_start_on(ground: Path, bubblewrap: Mechanism) -> None:
    with AppServerHarness(ground, extra_toml=mine(ground)) as harness:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {"permissions": "mine"}))["thread"]["id"]
        config = harness.home / "config.toml"
        config.write_text(config.read_text().replace('"." = "write"', '"." = "read"').replace("enabled = true", ""))
        answer, warnings = await restarted(harness, thread)
        assert answer["activePermissionProfile"] == {"id": "mine", "extends": ":read-only"}
        assert not answer["sandbox"]["networkAccess"]
        assert warnings == []
