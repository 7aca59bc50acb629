"""Commands of a turn: `CommandCall` is one call of exec_command, from the approval to the report; `write_stdin` is for
a command that runs already; `run_shell_command` runs one of the user's own, outside of the sandbox.

It owns the item of the command, also when the command outlives the call. Sessions, output and the texts for the model
are in `treadle.tools.command`.
"""

from __future__ import annotations

import asyncio
import os
from textwrap import indent
from typing import Any, Final

import msgspec
from msgspec import UNSET, structs

from treadle.agent.event import DeltaStream, new_id
from treadle.agent.thread.authority import CHANGED, ENDED, Grant, rules_of, turn_sandbox
from treadle.agent.thread.terminals import Terminal
from treadle.agent.thread.thread_state import RemoteCommand, Settings, Workplace
from treadle.agent.tools.approval import Approval, ApprovalQuestion, Outcome, ReviewedAction, Risk, command_use, is_yes
from treadle.agent.tools.built_in import ExecCommandArguments, WriteStdinArguments
from treadle.agent.turn.turn import Turn, Work, developer_message
from treadle.agent.turn.turn_items import OpenItem
from treadle.errors import INVALID_REQUEST, ExecError, OutcomeUnknown, SandboxRefused
from treadle.execution.sandbox.sandbox_modes import can_protect, may_write, unprotected
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    CommandGuardianApprovalReviewAction,
)
from treadle.protocol.app.items import CommandExecutionThreadItem, KnownItem
from treadle.protocol.app.notifications import CommandExecutionOutputDeltaNotification, TerminalInteractionNotification
from treadle.protocol.exec import EnvPolicy, Sandbox
from treadle.tools.command.command_actions import command_actions
from treadle.tools.command.command_output import CommandReport, Taken, new_chunk_id, report_text
from treadle.tools.command.command_sessions import CommandSession, CommandSpec
from treadle.tools.command.command_shell import shell_argv, shown
from treadle.tools.command.safety import is_known_safe
from treadle.tools.specs import ToolInputError

# --- exec_command -----------------------------------------------------------------------------------------------------


DEFAULT_YIELD_MS: Final = 10_000
MIN_YIELD_MS: Final = 250
MAX_YIELD_MS: Final = 30_000
# An empty write only looks: it may wait longer, because nothing is held up by it.
MAX_POLL_MS: Final = 300_000
DEFAULT_TOKENS: Final = 10_000
RETRY_REASON: Final = "command failed; retry without sandbox?"
# For programs that would otherwise page, colour or ask.
_ENV: Final = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat"}
_TTY_ENV: Final = {"TERM": "xterm", "PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat"}


class CommandCall:
    def __init__(self, turn: Turn, call_id: str, arguments: ExecCommandArguments) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._approval = Approval(turn, f"`{arguments.cmd}`")
        self._place = workplace(self._approval.settings, arguments.environment_id)
        self._settings = self._approval.settings.at(self._place)
        self._arguments = arguments
        cwd = self._settings.cwd
        self._cwd = os.path.normpath(os.path.join(cwd, arguments.workdir)) if arguments.workdir else cwd
        self._argv = self._words(arguments.shell)
        self._item = CommandExecutionThreadItem(
            id=call_id,
            command=shown(self._argv),
            command_actions=command_actions(arguments.cmd, self._cwd),
            cwd=self._cwd,
            status="inProgress",
        )
        self._opened: OpenItem | None = None
        self._session: CommandSession | None = None
        self._real_cwd = _without_links(self._cwd) if self._place.is_local else self._cwd
        self._protects = True

    def _words(self, shell: str | None) -> tuple[str, ...]:
        return shell_argv(self._arguments.cmd, shell, self._arguments.login)

    async def run(self) -> str:
        """The answer for the model."""
        escalated = self._arguments.sandbox_permissions == "require_escalated"
        try:
            machine = None if self._place.is_local else self._thread.services.machine(self._place.environment)
            if machine is not None:  # the command runs in its shell
                self._argv = self._words(self._arguments.shell or await machine.shell())
                self._item = structs.replace(self._item, command=shown(self._argv))
            if may_write(self._settings.in_force):
                self._protects = await (can_protect() if machine is None else machine.can_protect())
            sandbox = await turn_sandbox(self._turn, self._settings, protect=self._protects)
        except ExecError as error:
            return await self._not_started(error, confined=True)
        beyond = escalated and sandbox is not None
        wanted = None if escalated else sandbox
        if self._is_granted(unconfined=beyond):
            return await self._execute(wanted)
        risk = Risk(untrusted=not is_known_safe(self._argv), beyond=beyond)
        outcome = await self._approval.seek(risk, self._request(self._arguments.justification, beyond=beyond))
        if outcome == "refused":
            return self._approval.denied(outcome)  # without an item: nothing was begun
        return await self._after(outcome, wanted)

    async def _after(self, outcome: Outcome, sandbox: Sandbox | None) -> str:
        """Go on as it was decided."""
        if outcome == "acceptForSession" and not self._approval.outdated:
            self._thread.authority.commands.add(self._grant(unconfined=sandbox is None))
        if is_yes(outcome):
            return await self._execute(sandbox)
        self._finish(status="failed" if outcome == "failed" else "declined")
        return self._approval.denied(outcome)

    def _grant(self, *, unconfined: bool) -> Grant:
        return Grant(
            argv=self._argv,
            environment=self._place.environment,
            cwd=self._real_cwd,
            tty=self._arguments.tty,
            env=msgspec.json.encode(env_policy(self._turn), order="deterministic"),
            unconfined=unconfined,
        )

    def _is_granted(self, *, unconfined: bool) -> bool:
        """Whether it need not be asked for again. To run it in the sandbox is less than to run it without. What the
        thread may do beyond the sandbox, a reviewer may not."""
        if unconfined and self._turn.side is not None:
            return False
        granted = self._thread.authority.commands
        return self._grant(unconfined=True) in granted or (not unconfined and self._grant(unconfined=False) in granted)

    # --- asking ---

    def _request(self, reason: str | None, *, beyond: bool) -> ApprovalQuestion:
        def params() -> CommandExecutionRequestApprovalParams:
            return CommandExecutionRequestApprovalParams(
                thread_id=self._thread.id,
                turn_id=self._turn.id,
                item_id=self._item.id,
                started_at_ms=self._open().item.started_at_ms or 0,
                reason=UNSET if reason is None else reason,
                command=self._item.command,
                command_actions=self._item.command_actions,
                cwd=self._cwd,
                environment_id=self._place.environment,
                available_decisions=("accept", "acceptForSession", "decline", "cancel"),
            )

        method = "item/commandExecution/requestApproval"
        answer = CommandExecutionRequestApprovalResponse
        use = command_use(self._item.id, self._arguments.cmd, reason)
        return ApprovalQuestion(method, params, answer, use, lambda: self._action(reason, beyond))

    def _action(self, reason: str | None, beyond: bool) -> ReviewedAction:
        self._open()
        grant = self._grant(unconfined=beyond)
        return ReviewedAction(
            item_id=self._item.id,
            shown=CommandGuardianApprovalReviewAction(command=self._item.command, cwd=self._cwd, source="unifiedExec"),
            exact={
                "tool": "exec_command",
                "command": grant.argv,
                "cwd": grant.cwd,
                **({} if self._place.is_local else {"machine": grant.environment}),
                "terminal": grant.tty,
                "runs": "without a sandbox" if beyond else "in the sandbox of the thread",
            },
            reason=reason,
        )

    async def _ask_unconfined(self, reason: str) -> Outcome:
        if self._is_granted(unconfined=True):
            return "accept"
        return await self._approval.ask(self._request(reason, beyond=True))

    # --- running ---

    async def _execute(self, sandbox: Sandbox | None) -> str:
        if self._approval.outdated:
            self._finish(status="declined")
            return CHANGED
        if sandbox is None and not is_known_safe(self._argv):  # perhaps it was to run where nothing can be written
            await self._turn.before_write()
        try:
            session = await self._start(sandbox)
        except ExecError as error:
            return await self._not_started(error, confined=sandbox is not None)
        try:
            ended = await session.wait(_seconds(self._arguments.yield_time_ms, MAX_YIELD_MS))
        except asyncio.CancelledError:
            try:
                await session.terminate()
            finally:
                self._ended(session)  # before the turn is
            raise
        may_retry = not self._approval.outdated and self._approval.may_ask()
        if ended and session.sandbox_denied and sandbox is not None and may_retry:
            # The sandbox seems to have stood in the way.
            self._thread.sessions.forget(session)
            outcome = await self._ask_unconfined(RETRY_REASON)
            if outcome in ("decline", "failed", "withdrawn"):
                text = self._report(session, True)  # which is what the model has to work with
                return f"{text}\n\n{self._approval.denied(outcome)}" if self._approval.was_reviewed else text
            return await self._after(outcome, None)
        return self._report(session, ended)

    async def _start(self, sandbox: Sandbox | None) -> CommandSession:
        arguments = self._arguments
        if self._place.is_local and _without_links(self._cwd) != self._real_cwd:
            raise ExecError(f"{self._cwd} is no longer the directory {self._real_cwd}", INVALID_REQUEST)
        if sandbox is not None and not self._protects:
            there = None if self._place.is_local else self._place.environment
            self._thread.warn_once(self._turn, unprotected(there))
        spec = CommandSpec(
            command=self._argv,
            cwd=self._cwd,
            env=_TTY_ENV if arguments.tty else _ENV,
            env_policy=env_policy(self._turn),
            tty=arguments.tty,
            sandbox=sandbox,
            environment=self._place.environment,
        )
        rules = None if sandbox is None else await asyncio.to_thread(rules_of, sandbox, self._settings)
        session = self._session = await self._thread.sessions.start(spec, self._grow)
        self._item = structs.replace(self._item, process_id=session.process_id, source="unifiedExecStartup")
        opened = self._open()
        opened.look = self._so_far
        self._thread.terminals.add(Terminal(session, self._turn.items, opened, arguments.cmd, self._cwd))
        self._thread.command_started(session, self._approval.epoch, self._settings, rules)
        if not self._place.is_local:
            await self._note(session, unconfined=sandbox is None)
        return session

    async def _note(self, session: CommandSession, *, unconfined: bool) -> None:
        """Another server can find the command again, if this one ends before it."""
        environment = await self._thread.services.environment(self._place.environment)
        if environment.session_id is None or not session.running:
            return
        command = RemoteCommand(
            environment=self._place.environment,
            session=environment.session_id,
            process=session.executor_id,
            turn=self._turn.number,
            turn_id=self._turn.id,
            number=session.id,
            command=self._arguments.cmd,
            cwd=self._cwd,
            tty=self._arguments.tty,
            settings=self._settings,
            unconfined=unconfined,
        )
        self._thread.note_command(self._item.id, command)

    async def _not_started(self, error: ExecError, *, confined: bool) -> str:
        """The command did not start. If it is the sandbox that does not work here, the user may do without it."""
        if confined and isinstance(error, SandboxRefused) and self._approval.may_ask():
            return await self._after(await self._ask_unconfined(f"{error.message}. Run it without a sandbox?"), None)
        self._open()
        self._finish(status="failed", aggregated_output=error.message)
        if isinstance(error, OutcomeUnknown):
            return f"the command was sent, and no answer came: {error.message}. Look at what it has done."
        return f"the command could not be started: {error.message}"

    def _report(self, session: CommandSession, ended: bool) -> str:
        text = report(session, self._arguments.max_output_tokens)
        if ended:
            self._ended(session)
        else:
            self._open().in_background = True
            session.on_end = self._ended_behind
        return text

    # --- the item ---

    def _open(self) -> OpenItem:
        if self._opened is None:
            self._opened = self._turn.items.start(self._item)
        return self._opened

    def _grow(self, text: str) -> None:
        opened = self._opened
        if opened is None or self._turn.items.find(self._item.id) is not opened:
            return
        stream = opened.streams.get(("output", 0))
        if stream is None:
            stream = opened.streams["output", 0] = DeltaStream(
                "item/commandExecution/outputDelta",
                lambda delta: CommandExecutionOutputDeltaNotification(
                    thread_id=self._thread.id, turn_id=self._turn.id, item_id=self._item.id, delta=delta
                ),
            )
        self._thread.journal.append(stream, text)

    def _so_far(self, item: KnownItem) -> KnownItem:
        session = self._session
        assert session is not None
        if not session.running:
            return structs.replace(self._item, started_at_ms=item.started_at_ms, **outcome(session))
        output = session.aggregated or None
        return structs.replace(self._item, started_at_ms=item.started_at_ms, aggregated_output=output)

    def _ended(self, session: CommandSession) -> None:
        self._thread.sessions.forget(session)
        self._finish(**outcome(session))

    def _ended_behind(self, session: CommandSession) -> None:
        """It has ended in the background: the model is told when it looks."""
        self._thread.sessions.forget(session, last_report(session))
        self._finish(**outcome(session))

    def _finish(self, **changes: object) -> None:
        """End the item, in its turn or after it; not when its turn was removed or could not be stored."""
        opened = self._open()
        if self._turn.items.find(self._item.id) is opened:
            forgotten = self._thread.forget_commands((self._item.id,)) if self._thread.state.commands else ()
            self._turn.items.complete(structs.replace(self._item, **changes), *forgotten)


def outcome(session: CommandSession) -> dict[str, Any]:
    """What an item says of a command that has ended. One that was lost, or did not end when it was told to, has no
    exit code of its own."""
    return {
        "status": "completed" if session.exit_code == 0 else "failed",
        "aggregated_output": session.aggregated or session.failure,
        "exit_code": -1 if session.exit_code is None else session.exit_code,
        "duration_ms": session.duration_ms,
    }


def workplace(settings: Settings, environment_id: str | None) -> Workplace:
    """The environment that a call names, else the first. Raises `ToolInputError`."""
    if environment_id is None:
        return settings.workplace
    found = next((place for place in settings.workplaces if place.environment == environment_id), None)
    if found is None:
        raise ToolInputError(f"unknown turn environment id `{environment_id[:100]}`")
    return found


def env_policy(turn: Turn) -> EnvPolicy:
    return turn.thread.services.config_for(turn.thread.settings).env_policy()


def _without_links(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL byte, or a link that is swapped right now: the start will say what is wrong
        return path


def _seconds(asked_ms: int | None, longest: int) -> float:
    asked = DEFAULT_YIELD_MS if asked_ms is None else asked_ms
    return min(max(asked, MIN_YIELD_MS), longest) / 1000


def report(session: CommandSession, max_tokens: int | None) -> str:
    return _report(session, session.take_output(DEFAULT_TOKENS if max_tokens is None else max_tokens))


def last_report(session: CommandSession) -> str:
    """The report about a command that has ended, for later: whoever looks at it now gets its output as well."""
    return _report(session, session.peek_output(DEFAULT_TOKENS))


def _report(session: CommandSession, taken: Taken) -> str:
    text = report_text(
        CommandReport(
            chunk_id=new_chunk_id(),
            wall_time_s=session.duration_ms / 1000,
            taken=taken,
            exit_code=None if session.running else session.exit_code,
            session_id=session.id if session.running else None,
        )
    )
    if session.running or session.failure is None:
        return text
    return f"{text}\n[the command was lost, and how it ended is not known: {session.failure}]"


# --- write_stdin ------------------------------------------------------------------------------------------------------


async def write_stdin(turn: Turn, arguments: WriteStdinArguments) -> str:
    """The answer for the model about a command that runs already."""
    if turn.thread.authority.was_ended(arguments.session_id):
        return f"session {arguments.session_id} was {ENDED}"
    session = turn.thread.sessions.get(arguments.session_id)
    if session is None:
        last = None if turn.side is not None else turn.thread.sessions.take_last_report(arguments.session_id)
        if last is not None:
            return last
        return f"there is no session {arguments.session_id}: it has ended, or never was; run the command again"
    if turn.side is not None and not await asyncio.to_thread(turn.thread.authority.allows, session, turn.settings):
        return f"session {arguments.session_id} is not yours: it may do more than you may"
    if arguments.chars:
        await session.write(arguments.chars)
        for item in turn.items.open():
            if isinstance(item, CommandExecutionThreadItem) and item.process_id == session.process_id:
                params = TerminalInteractionNotification(
                    thread_id=turn.thread.id,
                    turn_id=turn.id,
                    item_id=item.id,
                    process_id=session.process_id,
                    stdin=arguments.chars,
                )
                turn.thread.journal.emit("item/commandExecution/terminalInteraction", params)
    longest = MAX_YIELD_MS if arguments.chars else MAX_POLL_MS
    await session.wait(_seconds(arguments.yield_time_ms, longest))
    text = report(session, arguments.max_output_tokens)
    turn.thread.sessions.forget(session)
    return text


# --- thread/shellCommand ----------------------------------------------------------------------------------------------


SHELL_TIMEOUT_S: Final = 3600.0
SHOWN_TOKENS: Final = 10_000


def shell_work(command: str, timeout_ms: int | None) -> Work:
    async def work(turn: Turn) -> None:
        await run_shell_command(turn, command, timeout_ms)

    return work


async def run_shell_command(turn: Turn, command: str, timeout_ms: int | None) -> None:
    thread = turn.thread
    await thread.load_history()  # first: a turn that is interrupted early has not done so when this ends
    cwd, place = thread.settings.cwd, thread.settings.workplace
    try:
        shell = None if place.is_local else await thread.services.machine(place.environment).shell()
    except ExecError as error:
        shell = None
        problem: ExecError | None = error
    else:
        problem = None
    argv = shell_argv(command, shell)
    item = CommandExecutionThreadItem(
        id=new_id(),
        command=shown(argv),
        command_actions=command_actions(command, cwd),
        cwd=cwd,
        status="inProgress",
        source="userShell",
    )
    opened = turn.items.start(item)
    stream = DeltaStream(
        "item/commandExecution/outputDelta",
        lambda delta: CommandExecutionOutputDeltaNotification(
            thread_id=thread.id, turn_id=turn.id, item_id=item.id, delta=delta
        ),
    )
    try:
        if problem is not None:
            raise problem
        spec = CommandSpec(command=argv, cwd=cwd, env_policy=env_policy(turn), environment=place.environment)
        session = await thread.sessions.start(spec, lambda text: thread.journal.append(stream, text))
    except ExecError as error:
        turn.items.complete(structs.replace(item, status="failed", aggregated_output=error.message))
        return
    opened.look = lambda begun: structs.replace(begun, aggregated_output=session.aggregated or None)
    try:
        ended = await session.wait(SHELL_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)
        if not ended:
            await session.terminate("ended: it took too long")
    except asyncio.CancelledError:
        try:
            await session.terminate()
        finally:
            _complete_shell(turn, item, session, command)
        raise
    _complete_shell(turn, item, session, command)


def _complete_shell(turn: Turn, item: CommandExecutionThreadItem, session: CommandSession, command: str) -> None:
    turn.thread.sessions.forget(session)
    done = structs.replace(item, **outcome(session))
    output = indent(session.take_output(SHOWN_TOKENS).text, "  ")  # so that it cannot end the note and go on
    note = (
        f"<user_shell_command>\nThe user ran this command:\n{command}\n"
        f"Exit code: {session.exit_code}\nOutput:\n{output}\n</user_shell_command>"
    )
    turn.items.complete(done, *turn.thread.add_history([developer_message(note)], turn.number))
