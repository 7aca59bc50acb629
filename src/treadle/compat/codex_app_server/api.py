"""`Codex`, `Thread`, `TurnHandle` of `codex_app_server`, and their twins for asyncio: those of `openai_codex_0_131`,
with the two settings of the protocol that say who decides.
"""

from treadle.compat.clients import AppServerClient as AppServerClient
from treadle.compat.clients import AsyncAppServerClient as AsyncAppServerClient
from treadle.compat.openai_codex_0_131 import api as later
from treadle.compat.openai_codex_0_131.api import AsyncTurnHandle as AsyncTurnHandle
from treadle.compat.openai_codex_0_131.api import RunResult as RunResult
from treadle.compat.openai_codex_0_131.api import TurnHandle as TurnHandle


class Codex(later.Codex, approvals="approval_policy approvals_reviewer"):
    """A connection to a server: threads are started, found and listed here."""


class AsyncCodex(later.AsyncCodex, approvals="approval_policy approvals_reviewer"):
    """The same for asyncio."""


class Thread(later.Thread, approvals="approval_policy approvals_reviewer"):
    """A conversation with the agent."""


class AsyncThread(later.AsyncThread, approvals="approval_policy approvals_reviewer"):
    """The same for asyncio."""
