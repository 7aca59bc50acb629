"""The official SDK as it was in its first release under the name `openai_codex`, 0.131.

    from treadle.compat.openai_codex_0_131 import Codex

What is not named here is in the submodules that it had: `types`, `client`, `errors`, `models`, `generated.v2_all`.
"""

from treadle._version import __version__ as __version__
from treadle.client.params import ApprovalMode as ApprovalMode
from treadle.client.turn_values import *  # noqa: F403
from treadle.compat.clients import AppServerConfig as AppServerConfig
from treadle.compat.openai_codex_0_131.api import AsyncCodex as AsyncCodex
from treadle.compat.openai_codex_0_131.api import AsyncThread as AsyncThread
from treadle.compat.openai_codex_0_131.api import AsyncTurnHandle as AsyncTurnHandle
from treadle.compat.openai_codex_0_131.api import Codex as Codex
from treadle.compat.openai_codex_0_131.api import RunResult as RunResult
from treadle.compat.openai_codex_0_131.api import Thread as Thread
from treadle.compat.openai_codex_0_131.api import TurnHandle as TurnHandle
from treadle.compat.openai_codex_0_131.errors import *  # noqa: F403
from treadle.compat.openai_codex_0_131.retry import retry_on_overload as retry_on_overload

_NAMES = (
    "__version__ AppServerConfig Codex AsyncCodex ApprovalMode Thread AsyncThread TurnHandle AsyncTurnHandle RunResult "
    "Input InputItem TextInput ImageInput LocalImageInput SkillInput MentionInput retry_on_overload AppServerError "
    "TransportClosedError JsonRpcError AppServerRpcError ParseError InvalidRequestError MethodNotFoundError "
    "InvalidParamsError InternalRpcError ServerBusyError RetryLimitExceededError is_retryable_error"
)
__all__ = _NAMES.split()
