"""The Responses API over Server-Sent Events.

`body`, `failure` and `translate` are pure; `lanes`, `connection` and `client` are the shell.
"""

from treadle.llm.responses.body import encode_body
from treadle.llm.responses.client import ResponsesModel, ResponsesStream
from treadle.llm.responses.lanes import LaneStats
from treadle.llm.responses.translate import Translator

__all__ = ["LaneStats", "ResponsesModel", "ResponsesStream", "Translator", "encode_body"]
