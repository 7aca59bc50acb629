"""Turns that another agent program answers: a thread whose provider is `engine:claude`, say.

An engine has a loop, tools and a context of its own. Each message is one run of it, in the session that the thread
remembers (`State.engine`), and what the run reports becomes items of the thread. The thread's history has what was
said, so that a session that is gone, was cut by a revert, or belongs to the thread that this one is a fork of, is
replaced by a new one, which gets the conversation.

    take input ─▶ run ─▶ items, questions, answer ─▶ more input? run again, in the same session ─▶ else the end

The sandbox of the thread is around the whole program, with its own folders and the network on top: it cannot work
without its provider. So a thread whose commands may not use the network has no engine. Nor has one whose calls somebody
wants to see first (the policy `untrusted`, a hook that guards) an engine that cannot ask.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, structs

from treadle.agent.event import DeltaStream
from treadle.agent.thread.authority import rules_of, turn_sandbox
from treadle.agent.thread.thread_state import DEFAULT_MODEL, EngineSession
from treadle.agent.tools.approval import (
    Approval,
    ApprovalQuestion,
    Risk,
    ToolUse,
    command_use,
    decide,
    is_yes,
    policy_name,
)
from treadle.agent.turn.turn_loop import take_input
from treadle.errors import ExecError, TreadleError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.sandbox.policy import contains, policy_from_wire
from treadle.execution.sandbox.sandbox_modes import UNPROTECTED, can_protect, may_write
from treadle.execution.sandbox.sandbox_roots import HiddenHome, path_entry
from treadle.llm import TokenUsage
from treadle.protocol.app.approvals import (
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
)
from treadle.protocol.app.items import AgentMessageThreadItem, CommandExecutionThreadItem, FileChangeThreadItem
from treadle.protocol.app.notifications import AgentMessageDeltaNotification
from treadle.protocol.exec import Sandbox
from treadle.runners.engine import ApprovalAnswer, ApprovalAsk, Engine, RunOptions, login_status
from treadle.runners.engine_items import EngineItem, EngineItems, session_key
from treadle.runners.engine_registry import find_engine
from treadle.runners.engine_reports import tokens_of, tool_action
from treadle.runners.run_events import Action, CompletedEvent, ResumeToken, StartedEvent
from treadle.runners.runner import Runner
from treadle.secrets import plain, secrets_in
from treadle.tools.command.safety import is_known_safe

if TYPE_CHECKING:
    from treadle.agent.turn.turn import Turn
    from treadle.agent.turn.turn_items import OpenItem

# Of a conversation that a new session gets, its end.
MAX_TOLD: Final = 60_000
_TOLD: Final = "What was said in this conversation so far, by the user and by you:"
_GONE: Final = "The session of {engine} is gone. A new one was begun, and was told the conversation."
MAX_LAST_WORDS: Final = 500
_CANNOT_ASK: Final = (
    "{engine} cannot work here: it does not ask before it uses a tool, and this thread wants to be asked ({why}). Use "
    "an engine that asks (claude), or a model."
)
_NO_PLAN: Final = "{engine} cannot plan here: its own plan mode is not this one. Leave plan mode, or use a model."
_NO_NETWORK: Final = (
    "{engine} cannot work here: it needs the network for its provider, all that it starts can use it too, and this "
    "thread may not. Allow it (sandbox_workspace_write.network_access = true, or another sandbox), or use a model."
)


class EngineFailed(TreadleError):
    """The run of an engine that did not do what it was asked."""


async def engine_turn(turn: Turn) -> None:
    """The work of a turn that an engine answers."""
    thread = turn.thread
    await thread.load_history()
    if (hooks := thread.hooks) is not None and not await hooks.start_session(turn):
        turn.input.drop()
        return
    engine = find_engine(thread.settings.engine or "")
    said = ""
    while True:
        session = thread.state.engine
        if await take_input(turn) and len(turn.history) > (0 if session is None else session.told):
            turn.check_budget()  # nobody counts while the engine runs
            said = await _EngineRun(turn, engine).run()
        if turn.input:
            continue
        await turn.wait_side_tasks()
        if thread.state.children and thread.children.pending():
            continue
        if hooks is not None and not turn.input and await hooks.stop(turn, said):
            continue
        if turn.try_finish():
            return


class _EngineRun:
    """One run: from what the engine does not know yet to its answer. It is a command of the thread: when the settings
    become narrower than those that it was started with, it is ended (`terminate`)."""

    def __init__(self, turn: Turn, engine: Engine[Any]) -> None:
        self._turn = turn
        self._thread = turn.thread
        self._engine = engine
        self._settings = turn.settings
        self._epoch = turn.thread.authority.epoch
        self._items = EngineItems(turn.id, self._settings.cwd, self)
        self._ended_for: str | None = None
        self.closed = True  # for the thread, which ends what may do more than its settings
        self._last_words = ""  # what a program that failed wrote on its standard error
        self._declined: set[str] = set()
        self.id: int = -turn.number
        self.process_id: str = engine.name

    async def run(self) -> str:
        """What the engine has answered. Raises `EngineFailed`."""
        self._check_asks()
        if self._settings.mode == "plan":
            raise EngineFailed(_NO_PLAN.format(engine=self._engine.name))
        runner = Runner(self._engine)
        environ = dict(os.environ)
        sandbox = await _sandbox(self._turn, self._engine, environ)
        model = self._settings.model
        options = RunOptions(
            model=None if model == DEFAULT_MODEL else model,
            effort=self._settings.effort,
            cwd=self._settings.cwd,
            approve=None if self._engine.answer is None else self._approve,
            watch=self._watch if self._engine.watched and self._has_hooks else None,
            sandbox=sandbox,
        )
        rules = await read_in_thread(lambda: rules_of(sandbox, self._settings))
        session = self._thread.state.engine
        token = None if session is None else ResumeToken(self._engine.name, session.id)
        if session is not None and session.engine != self._engine.name:
            token = None
        ended = await self._attempt(runner, token, options, rules)
        if ended is None:
            ended = await self._attempt(runner, None, options, rules)
            assert ended is not None
            if self._thread.state.engine != session:
                self._turn.report.warning(_GONE.format(engine=self._engine.name))
        if ended.ok:
            return ended.answer
        problem = self._ended_for or self._shown(ended.error or f"{self._engine.name} failed")
        if self._last_words:
            problem = f"{problem} Its last words: {self._last_words}"
        if login_status(self._engine, environ).ok is False and self._engine.log_in is not None:
            problem = f"{problem} There seems to be no login; log in: {self._engine.log_in}"
        raise EngineFailed(problem)

    def _check_asks(self) -> None:
        """Raise `EngineFailed` where somebody wants to see calls first, and the engine does not ask."""
        if self._engine.answer is not None:
            return
        why = None
        if decide(self._settings, Risk(untrusted=True, beyond=False)) != "allow":
            why = f"by the approval policy `{policy_name(self._settings)}`"
        elif (hooks := self._thread.hooks) is not None and hooks.guards_calls:
            why = "by a hook that guards"
        if why is not None:
            raise EngineFailed(_CANNOT_ASK.format(engine=self._engine.name, why=why))

    def _shown(self, text: str) -> str:
        """A text of the program about itself, as people and models may see it."""
        return plain(text, secrets_in(os.environ)).strip()

    async def _attempt(
        self, runner: Runner, token: ResumeToken | None, options: RunOptions, rules: Any
    ) -> CompletedEvent | None:
        """One start of the program: how it ended; None when there is no such session any more."""
        told = len(self._turn.history)
        run = runner.run(self._prompt(token), token, options)
        self._cancel = run.cancel
        self.closed = False
        self._thread.command_started(self, self._epoch, self._settings, rules)
        known = False
        try:
            async for event in run:
                if isinstance(event, StartedEvent):
                    known = True
                    self._remember(event.resume, told)
                if isinstance(event, CompletedEvent):
                    left = run.ending is not None and run.ending.exit_code not in (0, None)
                    self._last_words = self._shown(run.stderr)[-MAX_LAST_WORDS:] if left else ""
                    if token is not None and not known and left and self._ended_for is None:
                        return None  # it did not even find its session; what failed for another reason does so again
                    self._end(event)
                    return event
                self._items.receive(event)
                await self._thread.subscribers.wait_for_room()
            raise EngineFailed(f"{self._engine.name} ended without an answer")
        finally:
            self.closed = True
            self._thread.authority.closed(self)
            await run.aclose()

    async def terminate(self, reason: str) -> None:
        """End the run, because the settings of the thread allow less now."""
        self._ended_for = reason
        self._cancel()

    # --- its input, and what it says ---

    def _prompt(self, token: ResumeToken | None) -> str:
        """What the engine does not know yet: in a session the last messages, in a new one also what came before."""
        items, session = self._turn.history.items, self._thread.state.engine
        parts = []
        if token is not None and session is not None:
            new = _said(items[session.told :], ("user", "developer"))
        else:
            said = _said(items, ("user", "assistant", "developer"))
            first = len(said)
            while first and said[first - 1][0] != "assistant":
                first -= 1
            new = said[first:]
            config = self._thread.services.config_for(self._settings)
            instructions = self._settings.developer_instructions or config.developer_instructions
            if instructions:
                parts.append(f"<instructions>\n{instructions}\n</instructions>")
            told = "\n\n".join(f"[{role.upper()}]\n{text}" for role, text in said[:first] if role != "developer")
            if told:
                told = told if len(told) <= MAX_TOLD else f"…{told[-MAX_TOLD:]}"
                parts.append(f"<conversation>\n{_TOLD}\n\n{told}\n</conversation>")
        return "\n\n".join([*parts, *(text for _, text in new)]).replace("\0", "\N{REPLACEMENT CHARACTER}")

    def _remember(self, token: ResumeToken, told: int) -> None:
        session = EngineSession(engine=self._engine.name, id=token.value, told=told)
        if session != self._thread.state.engine:
            self._thread.change_state(engine=session)
            self._thread.journal.write(self._thread.save())

    def _end(self, event: CompletedEvent) -> None:
        if event.resume is not None and self._thread.state.engine is None:
            self._remember(event.resume, len(self._turn.history))
        if event.usage:
            self._count(event.usage)
        if event.answer:
            answer = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": event.answer}],
            }
            writes = self._turn.add_history([answer])
            if (session := self._thread.state.engine) is not None:
                self._thread.change_state(engine=structs.replace(session, told=len(self._turn.history)))
            self._thread.journal.write(*writes, self._thread.save())
        self._items.receive(event)

    def _count(self, used: dict[str, Any]) -> None:
        usage = TokenUsage(**tokens_of(used))
        cost = used.get("cost_usd")
        cost = float(cost) if isinstance(cost, int | float) else None
        if used.get("scope") == "session":  # then it is what all the runs have used
            known = self._thread.state.usage
            names = TokenUsage.__struct_fields__
            usage = TokenUsage(**{name: max(0, getattr(usage, name) - getattr(known.total, name)) for name in names})
            cost = None if cost is None else max(0.0, cost - (known.thread_cost_usd or 0.0))
        self._turn.report.engine_usage(usage, cost)

    # --- where its items go (`ItemSink`) ---

    def started(self, item: EngineItem) -> None:
        self._turn.items.start(item)

    def grown(self, message_id: str, text: str) -> None:
        opened = self._turn.items.find(message_id)
        assert opened is not None
        opened.texts.append(text)
        self._thread.journal.append(self._stream(opened), text)

    def _stream(self, opened: OpenItem) -> DeltaStream:
        stream = opened.streams.get(("text", 0))
        if stream is None:
            params = partial(
                AgentMessageDeltaNotification,
                thread_id=self._thread.id,
                turn_id=self._turn.id,
                item_id=opened.item.id,
            )
            stream = opened.streams["text", 0] = DeltaStream("item/agentMessage/delta", params)
        return stream

    def completed(self, item: EngineItem) -> None:
        self._turn.answered = True
        if item.id in self._declined and isinstance(item, CommandExecutionThreadItem | FileChangeThreadItem):
            item = structs.replace(item, status="declined")
        if self._turn.items.find(item.id) is None:
            self._turn.items.show(item)
        else:
            self._turn.items.complete(item)
        self._turn.called = self._turn.called or not isinstance(item, AgentMessageThreadItem)

    def notice(self, text: str) -> None:
        self._turn.report.warning(self._shown(text))

    # --- what it asks ---

    @property
    def _has_hooks(self) -> bool:
        return self._thread.hooks is not None and self._thread.hooks.has("PreToolUse")

    def _call(self, asked: ApprovalAsk) -> tuple[Action, EngineItem, ToolUse]:
        """The call that is asked about, with its item, which is started if the engine has not reported it yet."""
        given = dict(asked.input)
        action = tool_action(str(asked.detail.get("tool_use_id") or asked.id), asked.tool, given, self._settings.cwd)
        item = self._items.start(action)
        use = ToolUse(action.id, asked.tool, given)
        if isinstance(item, CommandExecutionThreadItem):
            use = command_use(action.id, item.command)
        return action, item, use

    async def _watch(self, asked: ApprovalAsk) -> ApprovalAnswer:
        """The hooks before a call: of every one, where the engine says each, else of those that it asks about."""
        hooks = self._thread.hooks
        assert hooks is not None
        _, item, use = self._call(asked)
        decision = await hooks.before_call(self._turn, use)
        hooks.add_contexts(self._turn, decision)
        refusal = decision.refusal
        if refusal is None and decision.updated_input is not None:
            # What clients see of the call is what the engine says of it, so nothing else is run.
            refusal = f"call it with {msgspec.json.encode(decision.updated_input).decode()} instead"
        if refusal is None:
            return ApprovalAnswer(allow=True)
        self._declined.add(item.id)
        return ApprovalAnswer(allow=False, message=f"blocked by a PreToolUse hook: {refusal}")

    async def _approve(self, asked: ApprovalAsk) -> ApprovalAnswer:
        """The approval policy decides as for a command of our own in the sandbox, or a person; hooks before that."""
        if self._has_hooks and not self._engine.watched and not (seen := await self._watch(asked)).allow:
            return seen
        given = dict(asked.input)
        action, item, use = self._call(asked)
        key = session_key(asked.tool, action.kind, given)
        if key in self._thread.authority.engine_tools:
            return ApprovalAnswer(allow=True)
        approval = Approval(self._turn, f"`{action.title}` of {self._engine.name}")
        is_safe = isinstance(item, CommandExecutionThreadItem) and is_known_safe(("bash", "-lc", item.command))
        outcome = await approval.seek(
            Risk(untrusted=not is_safe, beyond=False), self._question(item, use, asked.tool, key)
        )
        if is_yes(outcome) and approval.outdated:
            outcome = "withdrawn"
        if not is_yes(outcome):
            self._declined.add(item.id)
            return ApprovalAnswer(allow=False, message=approval.denied(outcome))
        if outcome == "acceptForSession" and key is not None:
            self._thread.authority.engine_tools.add(key)
        return ApprovalAnswer(allow=True)

    def _question(self, item: EngineItem, use: ToolUse, tool: str, key: tuple[str, ...] | None) -> ApprovalQuestion:
        opened = self._turn.items.find(item.id)
        ids: dict[str, Any] = {"thread_id": self._thread.id, "turn_id": self._turn.id}
        asks: dict[str, Any] = {
            **ids,
            "item_id": item.id,
            "started_at_ms": (None if opened is None else opened.item.started_at_ms) or 0,
            "reason": f"{self._engine.name} asks",
        }
        match item:
            case CommandExecutionThreadItem():
                decisions = ("accept", *(("acceptForSession",) if key else ()), "decline", "cancel")
                return ApprovalQuestion(
                    "item/commandExecution/requestApproval",
                    lambda: CommandExecutionRequestApprovalParams(
                        **asks,
                        command=item.command,
                        command_actions=item.command_actions,
                        cwd=item.cwd,
                        environment_id="local",
                        available_decisions=decisions,
                    ),
                    CommandExecutionRequestApprovalResponse,
                    use=use,
                )
            case FileChangeThreadItem():
                return ApprovalQuestion(
                    "item/fileChange/requestApproval",
                    lambda: FileChangeRequestApprovalParams(**asks),
                    FileChangeRequestApprovalResponse,
                    use=use,
                )
        from treadle.agent.thread.thread_mcp import ELICITATION
        from treadle.agent.tools.mcp_calls import question_meta, read_answer

        return ApprovalQuestion(
            ELICITATION,
            lambda: McpServerElicitationRequestParams(
                **ids,
                server_name=self._engine.name,
                mode="form",
                meta=question_meta(use.input, ("session",) if key else ()),
                message=f'Allow {self._engine.name} to use its tool "{tool}"?',
                requested_schema={"type": "object", "properties": {}},
            ),
            McpServerElicitationRequestResponse,
            read=read_answer,
            use=use,
        )


async def _sandbox(turn: Turn, engine: Engine[Any], environ: dict[str, str]) -> Sandbox | None:
    """The sandbox of the thread around the whole engine. Raises `EngineFailed` and `ExecError`."""
    thread, confinement = turn.thread, turn.settings.in_force
    if turn.settings.remote is not None:
        raise EngineFailed(
            f"{engine.name} works on this machine, and the environment of this thread is `{turn.settings.remote}`; "
            "start a thread without it"
        )
    protects = not may_write(confinement) or await can_protect()
    sandbox = await turn_sandbox(turn, protect=protects)
    if sandbox is None:
        return None
    if sandbox.permissions.network != "enabled":
        raise EngineFailed(_NO_NETWORK.format(engine=engine.name))
    if not protects:
        thread.warn_once(turn, UNPROTECTED)

    def opened() -> Sandbox:
        hidden, rules = HiddenHome(thread.services.home), policy_from_wire(sandbox)
        denials = [rule.path for rule in rules.rules if rule.access == "none" and rule.path != "/"] if rules else []
        entries = []
        for place in engine.own_places(environ):
            real = os.path.realpath(place)
            if hidden.has(real) or hidden.is_in(real):
                raise ExecError(f"{engine.name} cannot work in a sandbox here: Treadle's home is in its folder {place}")
            if any(contains(path, real) for path in denials):
                raise ExecError(
                    f"{engine.name} cannot work here: the permissions of the thread close its folder {place}"
                )
            if not os.path.lexists(real):  # before its first run; in the sandbox it could not make one
                os.makedirs(real, mode=0o700, exist_ok=True)
            entries.append(path_entry(real, "write"))
        files = sandbox.permissions.file_system
        assert files is not None
        files = structs.replace(files, entries=(*files.entries, *entries))
        return structs.replace(sandbox, permissions=structs.replace(sandbox.permissions, file_system=files))

    return await read_in_thread(opened)


# --- what was said, as text -------------------------------------------------------------------------------------------


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    image_url: Any = None


class _Message(msgspec.Struct):
    type: str = ""
    role: str = ""
    content: list[_Content] | str = ""


_read_message = msgspec.json.Decoder(_Message).decode


def _said(items: Sequence[Raw], roles: Sequence[str]) -> list[tuple[str, str]]:
    """The messages of these roles in a history, as text: engines are given words alone."""
    found: list[tuple[str, str]] = []
    for item in items:
        try:
            message = _read_message(item)
        except msgspec.DecodeError:  # a client has injected it
            continue
        if message.type != "message" or message.role not in roles:
            continue
        parts = [_Content(text=message.content)] if isinstance(message.content, str) else message.content
        texts = [_image(part.image_url) if part.type == "input_image" else part.text for part in parts]
        found.append((message.role, "\n".join(filter(None, texts))))
    return [each for each in found if each[1]]


def _image(url: object) -> str:
    if isinstance(url, str) and url.startswith(("http:", "https:")):
        return f"[image: {url}]"
    return "[An image is here, which this engine cannot be shown.]"
