"""What an agent refuses."""

from __future__ import annotations

from treadle.errors import TreadleError


class AgentClosed(TreadleError):
    """The agent was closed."""

    def __init__(self) -> None:
        super().__init__("the agent is closed: make another one, with the same store and session_id to go on")


class AgentBusy(TreadleError):
    """Too many turns wait for the one that runs."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} turns are waiting already: wait for some of them before you ask for more")


class WrongThread(TreadleError):
    """Something that waits for the agent was called by the agent itself, which would wait for ever."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} waits for the agent, so it cannot be called in on_event: call it from another thread")


class WrongProcess(TreadleError):
    """The agent belongs to the process that this one was forked from."""

    def __init__(self) -> None:
        super().__init__("the agent belongs to the process that this one was forked from: make another one here")
