"""A scene with MCP servers: probes of `kit/mcp_probe.py`, which write down what they are told."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kit.mcp_probe
from system.agent.scene import Json, Scene, scene
from treadle.testing import MockModel, ToolCall

PROBE = kit.mcp_probe.__file__
ASKED = "mcpServer/elicitation/request"
STATUS = "mcpServer/startupStatus/updated"
PROGRESS = "item/mcpToolCall/progress"


def record_of(tmp_path: Path, name: str = "probe") -> Path:
    return tmp_path / f"{name}.jsonl"


def probe_table(tmp_path: Path, name: str = "probe", *arguments: str, **keys: Any) -> str:
    """`[mcp_servers.NAME]` for a probe; `keys` are those of the table."""
    table: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", PROBE, "--record", str(record_of(tmp_path, name)), *arguments],
        **keys,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines.append(f"[mcp_servers.{name}.{key}]")
            lines += [f"{inner} = {json.dumps(each)}" for inner, each in value.items() if not isinstance(each, Mapping)]
            for inner, each in value.items():
                if isinstance(each, Mapping):
                    lines.append(f"[mcp_servers.{name}.{key}.{inner}]")
                    lines += [f"{innermost} = {json.dumps(one)}" for innermost, one in each.items()]
    return "\n".join([f"[mcp_servers.{name}]", *lines, ""])


@asynccontextmanager
async def mcp_scene(
    tmp_path: Path, *tables: str, model: MockModel | None = None, full_access: bool = True, **settings: Any
) -> AsyncIterator[Scene]:
    """With one probe, unless there are other tables. `full_access`: nothing is asked."""
    free = {"approval_policy": "never", "sandbox_mode": "danger-full-access"} if full_access else {}
    text = "\n".join(tables or (probe_table(tmp_path),))
    async with scene(tmp_path, extra_toml=text, settings={**free, **settings}, model=model) as stage:
        yield stage


def call(tool: str, text: str | None = None, call_id: str | None = None, *, server: str = "probe") -> ToolCall:
    """A call in the spelling that every wire API has."""
    return ToolCall(f"mcp__{server}__{tool}", {} if text is None else {"text": text}, call_id)


async def run_calls(stage: Scene, thread: str, *calls: ToolCall, **params: Any) -> dict[str, str]:
    """A turn with these calls in one response; what the model got for each."""
    ids = stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    assert (await stage.run(thread, **params))["status"] == "completed"
    outputs = stage.model.requests()[-1].tool_outputs
    return {call_id: outputs[call_id] for call_id in ids}


def items(stage: Scene) -> list[Json]:
    return stage.completed("mcpToolCall")


def statuses(stage: Scene) -> list[tuple[str, str]]:
    return [(each["params"]["name"], each["params"]["status"]) for each in stage.client.told(STATUS)]


def heard(tmp_path: Path, method: str | None = None, name: str = "probe") -> list[Json]:
    """What the client of a probe has sent it."""
    path = record_of(tmp_path, name)
    lines = path.read_text().splitlines() if path.exists() else []
    messages = [line["msg"] for line in map(json.loads, lines) if line["dir"] == "cli2srv"]
    return [message for message in messages if method in (None, message.get("method"))]


def processes(tmp_path: Path, name: str = "probe") -> list[int]:
    """The processes that a probe has had."""
    path = record_of(tmp_path, name)
    lines = path.read_text().splitlines() if path.exists() else []
    return [line["msg"]["pid"] for line in map(json.loads, lines) if line["dir"] == "proc"]


def tool_names(stage: Scene, number: int = -1) -> Sequence[str]:
    """What the model was told of with a request, flattened where the API has namespaces."""
    names: list[str] = []
    for tool in stage.model.requests()[number].json.get("tools") or ():
        if tool.get("type") == "namespace":
            names += [f"{tool['name']}__{inner['name']}" for inner in tool["tools"]]
        else:
            names.append(tool.get("name") or tool["function"]["name"])
    return names
