"""An assistant that stays: sessions that survive their runtimes, and an agent with memory, skills and review.

from treadle.host import HostAgent

agent = HostAgent()
print(agent.run_conversation("hello").final_response)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import load_name
from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.host.agent import ConversationResult, HostAgent
    from treadle.host.app_server.runtime import AppServerRuntime
    from treadle.host.approver import Ask
    from treadle.host.conversations import ConversationStore
    from treadle.host.engine_runtime import EngineRuntime
    from treadle.host.faults import (
        AgentBusy,
        AgentClosed,
        Fault,
        ResumeFailed,
        RuntimeFault,
        SessionBusy,
        SessionClosed,
    )
    from treadle.host.local_runtime import LocalRuntime
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.projection import Projection, project
    from treadle.host.runtime import Runtime, Usage
    from treadle.host.session import Session
    from treadle.host.skill_store import SkillStore
    from treadle.host.timeouts import Clock, Timeouts
    from treadle.host.turn_progress import TurnResult

_HOME = {
    "AgentBusy": "faults",
    "AgentClosed": "faults",
    "AppServerRuntime": "app_server.runtime",
    "Ask": "approver",
    "Clock": "timeouts",
    "ConversationResult": "agent",
    "ConversationStore": "conversations",
    "EngineRuntime": "engine_runtime",
    "Fault": "faults",
    "HostAgent": "agent",
    "LocalRuntime": "local_runtime",
    "MemoryStore": "memory.memory_files",
    "Projection": "projection",
    "ResumeFailed": "faults",
    "Runtime": "runtime",
    "RuntimeFault": "faults",
    "Session": "session",
    "SessionBusy": "faults",
    "SessionClosed": "faults",
    "SkillStore": "skill_store",
    "Timeouts": "timeouts",
    "TurnResult": "turn_progress",
    "Usage": "runtime",
    "project": "projection",
}

__all__ = [
    "AgentBusy",
    "AgentClosed",
    "AppServerRuntime",
    "Ask",
    "Clock",
    "ConversationResult",
    "ConversationStore",
    "EngineRuntime",
    "Fault",
    "HostAgent",
    "LocalRuntime",
    "MemoryStore",
    "Projection",
    "ResumeFailed",
    "Runtime",
    "RuntimeFault",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SkillStore",
    "Timeouts",
    "TurnResult",
    "Usage",
    "project",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        return internal_name(__name__, name)
    return load_name(f"{__name__}.{home}", name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.host.agent_resources import AgentTurn
    from treadle.host.app_server.faults import FaultContext, error_fault, turn_fault
    from treadle.host.app_server.host_client import login_advice, server_config
    from treadle.host.app_server.server_events import ask_of, decision_of, events_of
    from treadle.host.approver import AskPerson, Choice, MAX_AT_ONCE, PersonApprover, shown
    from treadle.host.chat_messages import MAX_CHARS, MAX_LINES_CHARS, MAX_MESSAGE_CHARS, MAX_VERBATIM_CHARS
    from treadle.host.chat_messages import TOOL_PREVIEW, VERBATIM, digest, history_text
    from treadle.host.engine_runtime import EngineTurn, engine_fault
    from treadle.host.faults import TAIL_LINES, WrongProcess, aborted_fault, advice, clean, deadline_fault, duration
    from treadle.host.faults import limit_ends, quiet_fault, says_logged_out, startup_fault, stuck_fault, tail
    from treadle.host.guarded_folder import Refused, locked
    from treadle.host.injection import find_injection
    from treadle.host.local_runtime import LEFT_OUT, LocalWire, recent
    from treadle.host.memory.entries import MAX_OPERATIONS, Operation, changed, parse, render, size
    from treadle.host.projection import DECLINED, UNFINISHED
    from treadle.host.reviewer import ReviewFailed, Reviewer
    from treadle.host.runtime import Compacted, Delta, ItemCompleted, ItemStarted, Message, Notice, Opened, Opening
    from treadle.host.runtime import RuntimeEvent, SignOfLife, ThreadNamed, TurnEnded, UsageReported
    from treadle.host.skill_folders import MARKERS, SkillChange
    from treadle.host.skill_store import SkillEditor
    from treadle.host.turn_progress import MAX_NOTICES, NextCheck, TurnProgress, TurnWatch, UsageMeter
