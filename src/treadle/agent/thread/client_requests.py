"""What a thread asks its clients and has not been answered yet: approvals, questions to the user, tools that they run.

It owns the table of open requests and their ids. A client that subscribes later gets those that are still open; the
first answer counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import SystemRandom
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Raw, Struct, structs

from treadle.errors import RpcError
from treadle.protocol.app.approvals import ToolRequestUserInputParams
from treadle.protocol.app.notifications import ServerRequestResolvedNotification

if TYPE_CHECKING:
    from treadle.agent.journal import Journal
    from treadle.agent.services import Subscribers
    from treadle.agent.thread.thread_state import AgentPlace

Answer: TypeAlias = Raw | RpcError

USER_INPUT: Final = "item/tool/requestUserInput"
TOOL_CALL: Final = "item/tool/call"
# Clients of several servers see the ids of all of them, and an answer may come back through another server than the
# one that asked. So an id is drawn, not counted; as a number that JavaScript can hold.
_ID_BITS: Final = 53
_random = SystemRandom()


class ClientRequest:
    """One request to the clients of a thread. `params` are set before it is sent. `person` is for clients that pass it
    on to a person, and not for those that say yes by themselves. An `approval` counts only under the settings that it
    was asked for under."""

    __slots__ = ("answer", "approval", "id", "method", "params", "person")

    def __init__(self, method: str, *, person: bool = False, approval: bool = False) -> None:
        self.id: int = _random.getrandbits(_ID_BITS)
        self.method: str = method
        self.params: Struct | None = None
        self.person: bool = person
        self.approval: bool = approval
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: Answer) -> None:
        """Late answers, and second ones, are ignored."""
        if not self.answer.done():
            self.answer.set_result(answer)


class ClientRequests:
    """The open requests of one thread. `on_flags` is called when what the thread waits for (`flags`) has changed."""

    __slots__ = ("_agent", "_journal", "_on_flags", "_open", "_subscribers", "_thread_id", "flags")

    def __init__(
        self,
        thread_id: str,
        journal: Journal,
        subscribers: Subscribers,
        on_flags: Callable[[], None],
        *,
        agent: AgentPlace | None = None,
    ) -> None:
        self._agent = agent
        self._thread_id = thread_id
        self._journal = journal
        self._subscribers = subscribers
        self._on_flags = on_flags
        self._open: dict[int, ClientRequest] = {}
        self.flags: tuple[str, ...] = ()  # what the status of the thread says that it waits for

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._open

    def sent(self) -> list[ClientRequest]:
        return [request for request in self._open.values() if request.params is not None]

    def open(self, method: str, *, person: bool = False, approval: bool = False) -> ClientRequest:
        """Put a request on the table. It is sent by `send`, when everything before it has been published."""
        request = ClientRequest(method, person=person, approval=approval)
        self._open[request.id] = request
        self._update_flags()
        return request

    def send(self, request: ClientRequest) -> None:
        if self._agent is not None and request.params is not None:
            request.params = _signed(request.params, self._agent.name)
        self._journal.after(lambda: self._subscribers.ask(request) if request.id in self._open else None)

    def close(self, request: ClientRequest) -> None:
        self._open.pop(request.id, None)
        params = ServerRequestResolvedNotification(thread_id=self._thread_id, request_id=request.id)
        self._journal.emit("serverRequest/resolved", params)
        self._update_flags()

    def _update_flags(self) -> None:
        methods = {request.method for request in self._open.values()} - {TOOL_CALL}
        waiting = {"waitingOnUserInput" if method == USER_INPUT else "waitingOnApproval" for method in methods}
        flags = tuple(sorted(waiting))
        if flags != self.flags:
            self.flags = flags
            self._on_flags()

    def answer(self, request_id: int, answer: Answer) -> None:
        request = self._open.get(request_id)
        if request is not None:
            request.resolve(answer)

    def withdraw_approvals(self, why: str) -> None:
        for request in self._open.values():
            if request.approval:
                request.resolve(RpcError(0, why))


def _signed(params: Struct, name: str) -> Struct:
    """What a sub-agent asks says who asks: whoever answers may never have heard of it."""
    if isinstance(params, ToolRequestUserInputParams):
        questions = (structs.replace(each, question=f"{name} asks: {each.question}") for each in params.questions)
        return structs.replace(params, questions=tuple(questions))
    for member in ("reason", "message"):
        if hasattr(params, member):
            said = getattr(params, member)
            return structs.replace(params, **{member: f"{name} asks: {said}" if said else f"{name} asks"})
    return params
