"""The keys of providers are for the server: no command has them in its environment, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from system.agent.scene import Scene, scene, shell
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]

# Names without KEY, SECRET or TOKEN in them.
NAMES = ("PLAIN_USED", "PLAIN_UNUSED", "PLAIN_HEADER", "PLAIN_BEARER")
PROVIDERS = """
[model_providers.mock_provider.env_http_headers]
x-account = "PLAIN_HEADER"

[model_providers.other]
base_url = "http://127.0.0.1:9/v1"
env_key = "PLAIN_UNUSED"

[mcp_servers.tools]
url = "http://127.0.0.1:9/mcp"
bearer_token_env_var = "PLAIN_BEARER"
"""
SHOW = "echo seen:" + "".join(f"[${name}]" for name in NAMES) + "[$PLAIN_OTHER]"


def _nothing_but(seen: str, *, other: str = "fine") -> bool:
    return f"seen:[][][][][{other}]" in seen


async def _everywhere(stage: Scene) -> dict[str, str]:
    """What a command sees: of the model, of the user in a thread, of a client without one."""
    thread = await stage.start()
    stage.model.enqueue_calls(ToolCall("exec_command", shell(SHOW), None))
    stage.model.enqueue_assistant_message("done")
    await stage.run(thread)
    (tool,) = stage.model.requests()[-1].tool_outputs.values()
    await stage.client.request("thread/shellCommand", {"threadId": thread, "command": SHOW})
    user = await stage.client.wait_for("item/completed", lambda params: params["item"].get("source") == "userShell")
    done = await stage.client.request("command/exec", {"command": ["/bin/sh", "-c", SHOW]})
    return {"tool": tool, "user": user["params"]["item"]["aggregatedOutput"], "client": done["stdout"]}


@pytest.mark.parametrize("policy", ["", "ignore_default_excludes = true", 'include_only = ["PLAIN*", "PATH"]'])
async def test_no_command_sees_the_keys_of_providers(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, f"secret of {name}")
    monkeypatch.setenv("PLAIN_OTHER", "fine")
    toml = f"{PROVIDERS}\n[shell_environment_policy]\n{policy}\n"
    async with scene(tmp_path, provider={"env_key": "PLAIN_USED"}, extra_toml=toml) as stage:
        for where, seen in (await _everywhere(stage)).items():
            assert _nothing_but(seen), f"{where}: {seen}"
        assert stage.model.requests()[0].headers["x-account"] == "secret of PLAIN_HEADER"


async def test_a_key_that_the_user_sets_for_commands_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_UNUSED", "secret")
    toml = f'{PROVIDERS}\n[shell_environment_policy]\nset = {{ PLAIN_UNUSED = "for commands" }}\n'
    async with scene(tmp_path, extra_toml=toml) as stage:
        for where, seen in (await _everywhere(stage)).items():
            assert "seen:[][for commands][]" in seen, f"{where}: {seen}"


async def test_a_provider_of_the_thread_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_USED", "secret")
    async with scene(tmp_path) as stage:
        thread = await stage.start(
            config={"model_providers.more": {"base_url": "http://127.0.0.1:9/v1", "env_key": "PLAIN_USED"}}
        )
        stage.model.enqueue_calls(ToolCall("exec_command", shell(SHOW), None))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        (told,) = stage.model.requests()[-1].tool_outputs.values()
        assert _nothing_but(told, other="")
