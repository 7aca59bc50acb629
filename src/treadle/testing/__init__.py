"""For tests of programs that use agents: a mock model, and an app-server with everything that it needs.

`MockModel` is a model server that plays what the test queued; it works with any client of the Responses API.
`AppServerHarness` puts a home, a workspace and a mock model together and runs a server on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.testing.mock_model import MockModel
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Reply, ToolCall, Usage

if TYPE_CHECKING:
    from treadle.testing.harness import AppServerHarness, HarnessClient

__all__ = ["AppServerHarness", "HarnessClient", "MockModel", "RecordedRequest", "Reply", "ToolCall", "Usage"]


def __getattr__(name: str) -> object:
    if name in ("AppServerHarness", "HarnessClient"):
        from treadle.testing import harness

        return getattr(harness, name)
    raise AttributeError(f"module 'treadle.testing' has no attribute {name!r}")
