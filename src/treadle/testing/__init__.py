"""For tests of programs that talk to a model: `MockModel`, a model server that plays what the test queued.

Public, and independent of the rest of Treadle: it works with any client of the Responses API.
"""

from __future__ import annotations

from treadle.testing.mock_model import MockModel
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Reply, ToolCall, Usage

__all__ = ["MockModel", "RecordedRequest", "Reply", "ToolCall", "Usage"]
