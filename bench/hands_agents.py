"""What a sub-agent costs, on our app-server and on the real one: part `agents` of `python -m bench hands`.

It is the time from the moment when the mock model has written the call to the arrival of the child's first request.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Mapping
from typing import Final

from bench.app_server import programs
from bench.app_server.__main__ import servers_of
from treadle.testing import MockModel, RecordedRequest, replies
from treadle.testing.replies import Reply

CHILD_HEADER: Final = "x-codex-parent-thread-id"
WARM_UP: Final = 2
SPAWNS: Final = 40


class SpawningModel(MockModel):
    """It starts a sub-agent in each turn, and notes how long that takes."""

    def __init__(self) -> None:
        self.taken_ms: list[float] = []
        self._called_at: dict[str, float] = {}  # when, by the thread that was asked to spawn
        self._spawns = itertools.count(1)
        super().__init__(on_empty=self._follow)

    def _follow(self, request: RecordedRequest) -> Reply | str:
        parent = request.header(CHILD_HEADER)
        if parent is not None:
            written = self._called_at.pop(parent, None)
            if written is not None:
                self.taken_ms.append((time.perf_counter() - written) * 1000)
            return "done"
        if request.input[-1].get("type") == "function_call_output" or request.input[-1].get("role") != "user":
            return "ok"
        if "<subagent_notification>" in str(request.input[-1]):
            return "ok"
        number = next(self._spawns)
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": "spawn_agent",
            "namespace": "multi_agent_v1",
            "arguments": json.dumps({"message": "Count to three."}),
            "status": "completed",
        }
        self._called_at[request.header("thread-id") or ""] = time.perf_counter()
        events = replies.stream(f"resp_{number}", [*replies.item_events(item, 0)], [item], None)
        return replies.sse_reply(events)


def measure() -> Mapping[str, float]:
    """Milliseconds by server; medians."""
    found: dict[str, float] = {}
    for server in servers_of(without_real=False):
        with SpawningModel() as model, programs.home_for(model.base_url) as home:
            config = home / "config.toml"
            config.write_text(config.read_text().replace(f"{model.base_url}/d1", model.base_url))  # a model of ours
            with programs.running(server, home) as up:
                for _ in range(
                    WARM_UP + SPAWNS
                ):  # each in a thread of its own: the real one limits those that are done
                    up.client.turn(up.client.start_threads(1)[0])
            found[f"{server.version}: from the call to the child's first request"] = statistics.median(
                model.taken_ms[WARM_UP:]
            )
    return found
