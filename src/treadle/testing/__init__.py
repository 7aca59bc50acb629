"""For tests of programs that use agents: mock models, and all that an agent needs around it.

`MockModel` is a model server that plays what the test queued; it works with any client of the Responses API.
`AppServerHarness` puts a home, a workspace and a mock model together and runs a server on them.
`EngineModel` is a model server that does what the prompt says, and speaks the APIs of codex, claude, opencode and pi;
`EngineHome` sets all of these programs up to use it.
`ScriptedRuntime` is a runtime of `treadle.host` that plays what the test wrote down, and `ManualClock` its clock.
`check_engine`, `check_runtime`, `check_store` and `check_wire_api` say what must hold for an engine, a runtime of the
host, a store of threads or a wire API of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import load_name
from treadle.internal_names import internal_name
from treadle.testing.mock_model import MockModel
from treadle.testing.mock_server import RecordedRequest
from treadle.testing.replies import Reply, ToolCall, Usage

if TYPE_CHECKING:
    from treadle.testing.engine_home import EngineHome
    from treadle.testing.engine_model import EngineModel
    from treadle.testing.engine_suite import check_engine
    from treadle.testing.harness import AppServerHarness, HarnessClient
    from treadle.testing.manual_clock import ManualClock
    from treadle.testing.runtime_suite import RuntimePlay, check_runtime
    from treadle.testing.scripted_runtime import ScriptedRuntime
    from treadle.testing.store_suite import STORE_CHECKS, check_store
    from treadle.testing.wire_suite import check_wire_api

__all__ = [
    "STORE_CHECKS",
    "AppServerHarness",
    "EngineHome",
    "EngineModel",
    "HarnessClient",
    "ManualClock",
    "MockModel",
    "RecordedRequest",
    "Reply",
    "RuntimePlay",
    "ScriptedRuntime",
    "ToolCall",
    "Usage",
    "check_engine",
    "check_runtime",
    "check_store",
    "check_wire_api",
]

_LAZY = {
    "AppServerHarness": "treadle.testing.harness",
    "HarnessClient": "treadle.testing.harness",
    "EngineHome": "treadle.testing.engine_home",
    "EngineModel": "treadle.testing.engine_model",
    "ManualClock": "treadle.testing.manual_clock",
    "ScriptedRuntime": "treadle.testing.scripted_runtime",
    "RuntimePlay": "treadle.testing.runtime_suite",
    "check_engine": "treadle.testing.engine_suite",
    "check_runtime": "treadle.testing.runtime_suite",
    "STORE_CHECKS": "treadle.testing.store_suite",
    "check_store": "treadle.testing.store_suite",
    "check_wire_api": "treadle.testing.wire_suite",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return load_name(_LAZY[name], name)
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.testing.engine_home import ENGINES, EngineName
    from treadle.testing.engine_model import Asked, PlannedCall, ReplyPlan, flat, plan_for
    from treadle.testing.replies import error_reply, is_delta, item_events, message_events, message_item, sse_reply
    from treadle.testing.replies import stream
    from treadle.testing.runtime_suite import deny, turn_events
    from treadle.testing.scripted_runtime import Act, DONE, Gate, SILENCE, STOPPED, echoed, ran, running, said
    from treadle.testing.scripted_runtime import thought
    from treadle.testing.store_checks import A, B, commit, event, events_of, history, item, queued, thread, turn
    from treadle.testing.wire_suite import check_order
