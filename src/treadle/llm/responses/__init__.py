"""The Responses API over Server-Sent Events.

`body`, `failure`, `translate` and `http1` are pure. `wire` is one connection, `lane` asks over it, `lanes` keeps them
alive, `connection` asks again where that is harmless, and `client` is the model that the agent sees.
"""

from treadle.llm.responses.body import encode_body
from treadle.llm.responses.client import ResponsesModel, ResponsesStream
from treadle.llm.responses.lanes import LaneStats
from treadle.llm.responses.translate import Translator

__all__ = ["LaneStats", "ResponsesModel", "ResponsesStream", "Translator", "encode_body"]
