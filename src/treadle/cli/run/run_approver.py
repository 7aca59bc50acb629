"""`RunApprover`: an engine's questions, put to the person at the terminal as those of `treadle exec` are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from treadle.cli.run.run_view import LiveView
from treadle.cli.turn.approval_question import Question, approval_question
from treadle.cli.turn.live_turn import Keyboard, choose
from treadle.protocol.app.approvals import CommandExecutionRequestApprovalParams, McpServerElicitationRequestParams
from treadle.runners.engine import ApprovalAnswer, ApprovalAsk


class RunApprover:
    """Asks one question after the other; what is no clear yes is a no. A question that is withdrawn is cancelled.

    Args:
        engine: Who asks, by name.
        cwd: Where it works.
        view: Where the questions are shown.
        stop: Stops the run.
    """

    def __init__(self, engine: str, cwd: str, view: LiveView, stop: Callable[[], None]) -> None:
        self._engine = engine
        self._cwd = cwd
        self._view = view
        self._stop = stop
        self._keyboard = Keyboard()
        self._one_at_a_time = asyncio.Lock()

    def close(self) -> None:
        """The keyboard as it was. May be called again, and by a handler of signals."""
        self._keyboard.restore()

    async def __call__(self, ask: ApprovalAsk) -> ApprovalAnswer:
        async with self._one_at_a_time:
            with self._view.aside() as console:
                choice, instead = await choose(tool_question(self._engine, self._cwd, ask), console, self._keyboard)
        if choice is not None and choice.stops:
            self._stop()
        return ApprovalAnswer(allow=choice is not None and choice.allows, message=instead)


def tool_question(engine: str, cwd: str, ask: ApprovalAsk) -> Question:
    """The question about a command, or about another tool with all that it would be called with."""
    command, why = ask.input.get("command"), ask.input.get("description")
    question: Question | None
    if isinstance(command, str) and not set(ask.input) - {"command", "description", "timeout"}:
        run = CommandExecutionRequestApprovalParams(
            thread_id="",
            turn_id="",
            item_id=ask.id,
            started_at_ms=0,
            command=command,
            cwd=cwd,
            reason=why if isinstance(why, str) else None,
            available_decisions=("accept", "decline", "cancel"),
        )
        question = approval_question("item/commandExecution/requestApproval", run)
    else:
        use = McpServerElicitationRequestParams(
            thread_id="",
            server_name=engine,
            mode="form",
            message=f"May {engine} use {ask.tool}?",
            meta={"codex_approval_kind": "mcp_tool_call", "tool_params": dict(ask.input)},
        )
        question = approval_question("mcpServer/elicitation/request", use)
    assert question is not None
    return question
