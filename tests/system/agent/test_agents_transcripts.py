"""What the real server (codex 0.166) did with sub-agents, done again: the same calls, the same items and outputs.

Each file has the turns of a client in their order, the items of calls that it saw in them, and what the model got
back. Ids of threads are `<T0>`, `<T1>`, … as they came up. Models, efforts and nicknames are not compared.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel
from system.agent.scene import Json, scene

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parents[2] / "data" / "agents_transcripts"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_LEFT_OUT = {"id", "model", "reasoningEffort", "startedAtMs", "completedAtMs"}


def _masked(text: str, ids: list[str]) -> str:
    for number, thread_id in enumerate(ids):
        text = text.replace(thread_id, f"<T{number}>")
    return _ID.sub("<id>", re.sub(r'"nickname":"[^"]*"', '"nickname":"<name>"', text))


def _completes(item: Json) -> bool:
    """The real server leaves an item of a refused spawn open; ours completes it."""
    return bool(item["tool"] == "spawnAgent" and item["status"] == "failed")


@pytest.mark.parametrize("name", ["life", "fork"])
async def test_it_is_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = json.loads((DATA / f"{name}.json").read_text())
    with AgentsModel() as model:
        async with scene(tmp_path, model=model) as stage:
            told = stage.client.told
            await stage.start(sandbox="workspace-write", approvalPolicy="never")

            def ids() -> list[str]:
                return [each["params"]["thread"]["id"] for each in told("thread/started")]

            def at_rest(_: Any) -> bool:
                ended = [each["params"]["threadId"] for each in told("turn/completed")]
                begun = [each["params"]["threadId"] for each in told("turn/started")]
                return len(ended) == len(begun) and set(ids()[1:]) <= set(ended)

            for turn in recorded["turns"]:
                text = re.sub(r"<T(\d+)>", lambda found: ids()[int(found[1])], turn["text"])
                thread = ids()[int(turn["thread"][2:-1])]
                seen, before = len(told()), len(model.of(thread))
                await stage.run(thread, text)
                await stage.client.wait_for("turn/completed", at_rest)
                items = [
                    [each["method"], {key: value for key, value in item.items() if key not in _LEFT_OUT}]
                    for each in told()[seen:]
                    if each["method"] in ("item/started", "item/completed")
                    and (item := each["params"]["item"])["type"] == "collabAgentToolCall"
                    and not _completes(item)
                ]
                assert json.loads(_masked(json.dumps(items), ids())) == turn["items"], text
                known = model.of(thread)[before].tool_outputs if before < len(model.of(thread)) else {}
                outputs = model.of(thread)[-1].tool_outputs
                fresh = [outputs[call] for call in outputs if call not in known]
                wanted = [_masked(output, []) for output in turn["outputs"]]
                assert [_masked(output, ids()) for output in fresh] == wanted, text
