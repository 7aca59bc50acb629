"""An assistant that stays: sessions that survive their runtimes, and an agent with memory, skills and review.

from treadle.host import HostAgent

agent = HostAgent()
print(agent.run_conversation("hello").final_response)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.host.agent import HostAgent
    from treadle.host.agent_errors import AgentBusy, AgentClosed
    from treadle.host.app_server.runtime import AppServerRuntime
    from treadle.host.ask import Ask
    from treadle.host.clock import Clock
    from treadle.host.conversation_result import ConversationResult
    from treadle.host.conversations import ConversationStore
    from treadle.host.engine.runtime import EngineRuntime
    from treadle.host.faults import Fault, ResumeFailed, RuntimeFault, SessionBusy, SessionClosed
    from treadle.host.local.runtime import LocalRuntime
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.projection import Projection, project
    from treadle.host.runtime import Runtime
    from treadle.host.session import Session
    from treadle.host.skills.skill_store import SkillStore
    from treadle.host.timeouts import Timeouts
    from treadle.host.turn_result import TurnResult
    from treadle.host.usage import Usage

_HOME = {
    "AgentBusy": "agent_errors",
    "AgentClosed": "agent_errors",
    "AppServerRuntime": "app_server.runtime",
    "Ask": "ask",
    "Clock": "clock",
    "ConversationResult": "conversation_result",
    "ConversationStore": "conversations",
    "EngineRuntime": "engine.runtime",
    "Fault": "faults",
    "HostAgent": "agent",
    "LocalRuntime": "local.runtime",
    "MemoryStore": "memory.memory_files",
    "Projection": "projection",
    "ResumeFailed": "faults",
    "Runtime": "runtime",
    "RuntimeFault": "faults",
    "Session": "session",
    "SessionBusy": "faults",
    "SessionClosed": "faults",
    "SkillStore": "skills.skill_store",
    "Timeouts": "timeouts",
    "TurnResult": "turn_result",
    "Usage": "usage",
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
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
