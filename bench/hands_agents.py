"""`python -m bench.hands_agents`: what a sub-agent costs, on our app-server and on the real one: from the moment when
the mock model has written the call to the arrival of the child's first request. It is to be a part of `bench hands`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence

from bench.app_server import programs
from bench.app_server.__main__ import servers_of
from treadle.testing import MockModel, RecordedRequest, replies
from treadle.testing.replies import Reply

CHILD_HEADER = "x-codex-parent-thread-id"


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hands_agents", description=(__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="fewer of them")
    parser.add_argument("--without-real", action="store_true", help="only our server")
    options = parser.parse_args(arguments)
    times = 10 if options.quick else 40
    print("| from the call to the child's first request | ms |\n|---|---|")
    for server in servers_of(without_real=options.without_real):
        with SpawningModel() as model, programs.home_for(model.base_url) as home:
            config = home / "config.toml"
            config.write_text(config.read_text().replace(f"{model.base_url}/d1", model.base_url))  # a model of ours
            with programs.running(server, home) as up:
                for _ in range(times + 2):  # each in a thread of its own: the real server limits those that are done
                    up.client.turn(up.client.start_threads(1)[0])
            taken = model.taken_ms[2:]
            print(f"| {server.version} | {statistics.median(taken):.2f} |")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
