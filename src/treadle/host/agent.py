"""`HostAgent`: a conversation that survives its runtimes, remembers, and learns.

It owns the messages, the counters, the live session, and what happens before and after every turn, whichever runtime
runs it. All of that happens on one event loop of its own (`LoopThread`), so that it can be called from any thread, with
or without an event loop. `Session` runs the turns, `Transcript` owns what is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from treadle.agent.event import new_id
from treadle.arguments import count, flag, folder, function, limit, one_of, text, wait_of, wrong_type
from treadle.client.own_thread import run_on_own_thread
from treadle.client.tools import Tool, tools_by_name
from treadle.errors import ArgumentValueError, TreadleError
from treadle.host.agent_resources import AgentResources, AgentTurn, EventDisplay, approvals_of, publish_summary
from treadle.host.approver import Approvals
from treadle.host.chat_messages import called_tools, checked_input, close_calls, user_message, without_echo
from treadle.host.faults import AgentBusy, AgentClosed, RuntimeFault, WrongThread, clean
from treadle.host.host_tools import Prompt, compose, offered_tools, tool_names
from treadle.host.loop_thread import LoopThread
from treadle.host.runtime import Message, Opening, RuntimeEvent, UserInput
from treadle.host.runtime_choice import RuntimeChoice, RuntimeLike
from treadle.host.session import Session
from treadle.host.timeouts import Clock, Timeouts
from treadle.host.transcript import Transcript, choose_store, conversations_at, memory_at, skills_at
from treadle.host.turn_progress import TurnResult

if TYPE_CHECKING:
    from treadle.host.conversations import ConversationStore, TurnState
    from treadle.host.faults import Fault
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.reviewer import Reviewer
    from treadle.host.runtime import Usage
    from treadle.host.skill_store import SkillStore

logger: logging.Logger = logging.getLogger(__name__)

MAX_WAITING: Final = 32
_SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")


MEMORY_TOOL: Final = "memory"
SKILL_TOOL: Final = "skill_manage"


class ReviewCounters:
    """The counters of an agent. An interval of 0 is never over.

    Args:
        memory_nudge_interval: After how many turns without a use of the memory to review what is to be remembered.
        skill_nudge_interval: After how many uses of tools without a change of a skill to review what can be learned.
    """

    def __init__(self, memory_nudge_interval: int, skill_nudge_interval: int) -> None:
        self.memory_nudge_interval = memory_nudge_interval
        self.skill_nudge_interval = skill_nudge_interval
        self.user_turn_count: int = 0
        self.turns_since_memory: int = 0
        self.iterations_since_skill: int = 0

    def hydrate(self, earlier: Sequence[Message], *, remembers: bool) -> None:
        """Go on from a conversation that was stored, unless somebody has set the counters."""
        said = sum(message.get("role") == "user" for message in earlier)
        self.user_turn_count = self.user_turn_count or said
        if remembers and self.memory_nudge_interval:
            self.turns_since_memory = self.turns_since_memory or said % self.memory_nudge_interval

    def count_user_turn(self, *, remembers: bool) -> None:
        """A turn of the user: one more without the memory, until it is used."""
        self.user_turn_count += 1
        if remembers and self.memory_nudge_interval:
            self.turns_since_memory += 1

    def count_tools(self, iterations: int, used: Iterable[str]) -> None:
        """What a turn did: an agent that stores something by itself needs no nudge."""
        names = set(used)
        self.iterations_since_skill = 0 if SKILL_TOOL in names else self.iterations_since_skill + iterations
        if MEMORY_TOOL in names:
            self.turns_since_memory = 0

    def memory_is_due(self) -> bool:
        """Whether so many turns did not use the memory that a review looks for what is to be remembered."""
        return 0 < self.memory_nudge_interval <= self.turns_since_memory

    def skills_are_due(self) -> bool:
        """Whether so many tools were used that a review looks for what can be learned."""
        return 0 < self.skill_nudge_interval <= self.iterations_since_skill

    def reviewed(self, *, memory: bool, skills: bool) -> None:
        """A review of these has started."""
        if memory:
            self.turns_since_memory = 0
        if skills:
            self.iterations_since_skill = 0


class HostAgent(ReviewCounters):
    """A conversation with an agent: turns, one after the other, on a runtime that may have to be replaced.

    Making one touches neither network nor disk. It is to be closed (`with HostAgent() as agent`); one that is
    forgotten is ended when nothing refers to it any more, or with the program.

    Args:
        runtime: What runs the turns: `app_server`; our own loop straight on the provider, by its wire API
            (`responses`, `chat_completions`, `anthropic`) or by what the provider has (`auto`); an engine such as
            `claude`; a `Runtime`; or a function that makes one. It is kept in `runtime_name`.
        api_key: The key for the provider; else what is configured.
        base_url: Where the provider is; else what is configured.
        provider: Whose models are asked. As long as this is the default and neither key nor URL is given, the
            configuration decides.
        memory: What is remembered over sessions: True for the folder `memory` in the home, a path, or a `MemoryStore`.
        skills: What was learned: True for the folder `skills` in the home, a path, or a `SkillStore`.
        memory_nudge_interval: After so many turns in which the memory was not used, a review looks for what is to be
            remembered; 0 for never.
        skill_nudge_interval: After so many uses of tools, a review looks for what can be learned; 0 for never.
        review: Whether there are reviews at all.
        approvals: Asked before something is done that needs a yes, with an `Ask`; without it the answer is no. A plain
            function is called on a thread of its own; a coroutine function on the event loop of who called
            `arun_conversation`, or else on the agent's.
        store: Where the conversation is stored: True for `conversations.db` in the home, a path, or a
            `ConversationStore`. Without it nothing is stored.
        model: The model to ask; else the runtime's own choice.
        cwd: Where commands run.
        timeouts: How long to wait for what.
        clock: Where to look for the time.
        instructions: Instructions for the model besides memory and skills.
        sandbox: What commands may do with files: `read-only`, `workspace-write` or `danger-full-access`.
        session_id: Which conversation of the store to go on with, or to begin; else a new one.
        on_event: Called with every event of a turn, in order, for display; on a thread of its own.
        tools: Functions that the model can call, besides those of the host.
    """

    def __init__(
        self,
        runtime: RuntimeLike = "app_server",
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "openai",
        memory: bool | str | os.PathLike[str] | MemoryStore | None = None,
        skills: bool | str | os.PathLike[str] | SkillStore | None = None,
        memory_nudge_interval: int = 10,
        skill_nudge_interval: int = 10,
        review: bool = True,
        approvals: Approvals | None = None,
        store: bool | str | os.PathLike[str] | ConversationStore | None = None,
        *,
        model: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        instructions: str | None = None,
        sandbox: str | None = None,
        session_id: str | None = None,
        on_event: Callable[[RuntimeEvent], object] | None = None,
        tools: Iterable[Callable[..., Any] | Tool] = (),
    ) -> None:
        super().__init__(
            count("memory_nudge_interval", memory_nudge_interval), count("skill_nudge_interval", skill_nudge_interval)
        )
        words = {"api_key": api_key, "base_url": base_url, "model": model, "instructions": instructions}
        for name, value in {**words, "session_id": session_id}.items():
            if value is not None:
                text(name, value)
        if not text("provider", provider):
            raise ArgumentValueError("provider", "provider is empty: leave it out, or name one of config.toml")
        if timeouts is not None and not isinstance(timeouts, Timeouts):
            raise wrong_type("timeouts", "Timeouts(…)", timeouts)
        self._choice = RuntimeChoice(runtime, provider, api_key, base_url)
        self.runtime_name: str = self._choice.name
        self.model: str | None = model
        self.instructions: str | None = instructions
        self.cwd: str | None = None if cwd is None else folder("cwd", cwd)
        self.sandbox: str | None = None if sandbox is None else one_of("sandbox", sandbox, _SANDBOXES)
        self.review: bool = flag("review", review)
        self._memory = choose_store("memory", memory, "memory", memory_at, ("prompt", "tool"))
        self._skills = choose_store("skills", skills, "skills", skills_at, ("prompt", "tools"))
        kept = choose_store("store", store, "conversations.db", conversations_at, ("claim", "begin_turn", "end_turn"))
        if session_id is not None and kept is None:
            raise ArgumentValueError("session_id", "session_id names a conversation of a store: pass store=… too")
        self._tools = tools_by_name(tools)
        offered = tool_names(memory=self._memory is not None, skills=self._skills is not None, search=kept is not None)
        taken = sorted(offered & set(self._tools))
        if taken:
            raise ArgumentValueError("tools", f"`{taken[0]}` is a tool of the host: give yours another name")
        self.tool_names: set[str] = offered | set(self._tools)
        self._approvals = None if approvals is None else function("approvals", approvals, "an Ask")
        shown = None if on_event is None else function("on_event", on_event, "an event")
        self._clock = clock
        self._composed: object = None
        self._prompt = Prompt()
        self._steered: list[str] = []
        self._waiting = 0
        self._turns = asyncio.Lock()
        shares = not isinstance(store, bool | str | os.PathLike)
        transcript = Transcript(session_id or new_id(), kept, owns_store=not shares)
        self._own = AgentResources(LoopThread("treadle agent"), transcript, timeouts or Timeouts())
        self._sink = None if shown is None else EventDisplay(shown, self._own.loop)
        # At the end of the program it is `guard` that sees to it, and waits.
        weakref.finalize(self, self._own.close_soon).atexit = False

    def __repr__(self) -> str:
        return f"HostAgent(runtime={self.runtime_name!r}, session_id={self.session_id!r})"

    # --- what it has -------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """The session that is live; None before the first turn, and after one that has to be replaced."""
        return self._own.session

    @session.setter
    def session(self, session: Session | None) -> None:
        self._own.session = session

    @property
    def session_id(self) -> str:
        """The id of the conversation in the store."""
        return self._own.transcript.session_id

    @property
    def messages(self) -> list[Message]:
        """The conversation; what is stored is loaded by the first turn."""
        return self._own.transcript.messages

    @property
    def timeouts(self) -> Timeouts:
        """How long to wait for what."""
        return self._own.timeouts

    @property
    def memory(self) -> MemoryStore | None:
        """What is remembered; None for an agent without a memory."""
        return None if self._memory is None else self._memory()

    @property
    def skills(self) -> SkillStore | None:
        """What was learned; None for an agent without skills."""
        return None if self._skills is None else self._skills()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._own.closed

    # --- turns, for callers ------------------------------------------------------------------------------------------

    def run_conversation(self, user_message: UserInput, **options: Any) -> ConversationResult:
        """Run a turn to its end. A second one waits for the first.

        What goes wrong with the runtime is in the result. `StoreError` is raised when the conversation cannot be opened
        or the message not be stored: the turn has not begun then. Ctrl-C interrupts the turn.

        Args:
            user_message: What the user says: a text, or parts of text and images; it cannot be empty.
            options: For the runtime, such as `model` or `effort`.
        """
        if self._own.loop.inside():
            raise WrongThread("run_conversation")
        turn, future = self._ask_for(user_message, options, None)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # Ctrl-C
                self._own.loop.call(turn.stop)
                wait_for([future], self._own.patience())
            elif future.cancelled():
                raise AgentClosed from None
            raise

    async def arun_conversation(self, user_message: UserInput, **options: Any) -> ConversationResult:
        """The same for asyncio. Who is cancelled interrupts the turn, and waits for its end.

        Args:
            user_message: What the user says: a text, or parts of text and images; it cannot be empty.
            options: For the runtime, such as `model` or `effort`.
        """
        if self._own.loop.inside():
            raise WrongThread("arun_conversation")
        turn, future = self._ask_for(user_message, options, asyncio.get_running_loop())
        done = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if done.cancelled():
                raise AgentClosed from None
            self._own.loop.call(turn.stop)
            await asyncio.wait({done}, timeout=self._own.patience())
            raise

    def interrupt(self) -> None:
        """End the turn that runs; from any thread. Those that wait go on."""
        self._own.loop.call(self._own.interrupt)

    def steer(self, words: str) -> bool:
        """Say something in the middle of the turn; from any thread.

        False when no turn runs or the runtime cannot take it: then it goes to the beginning of the user's
        next message.

        Args:
            words: What to say.
        """
        said = text("words", words)
        if self._own.loop.inside():
            raise WrongThread("steer")
        if self.closed:
            raise AgentClosed
        return self._own.loop.submit(lambda: self._steer(said)).result()

    def use_runtime(self, runtime: RuntimeLike) -> None:
        """Go on with another runtime from the next turn on; it is given the conversation so far.

        Args:
            runtime: As for the constructor, such as `auto`.
        """
        before = self._choice
        self._choice = RuntimeChoice(runtime, before.provider, before.api_key, before.base_url)
        self.runtime_name = self._choice.name

    # --- reviews -----------------------------------------------------------------------------------------------------

    def review_runtime(self) -> str:
        """Where a review would run. Not on an app-server: it needs the host's own tools, and those alone."""
        return self._choice.review_name()

    def spawn_background_review(
        self, *, messages_snapshot: list[Message], review_memory: bool, review_skills: bool
    ) -> bool:
        """Look back at a conversation in the background, and keep what was learned. False when that cannot begin:
        a review runs already, or there is nowhere to keep anything.

        Args:
            messages_snapshot: The conversation.
            review_memory: Whether to look for what is to be remembered.
            review_skills: Whether to look for what can be learned.
        """
        memory = self.memory if review_memory else None
        skills = self.skills if review_skills else None
        if self.closed or (memory is None and skills is None):
            return False
        choice, model, timeouts, clock = self._choice, self.model, self.timeouts, self._clock

        def reviewer() -> Reviewer:
            from treadle.host.reviewer import Reviewer  # loaded with the first review

            return Reviewer(
                lambda: choice.make_reviewing(model, timeouts.tool),
                memory=memory,
                skills=skills,
                timeouts=timeouts,
                clock=clock,
            )

        return self._own.review.start(
            reviewer,
            messages_snapshot,
            publish_summary(self._own.transcript, self._sink),
            review_memory=memory is not None,
            review_skills=skills is not None,
        )

    def wait_for_review(self, timeout: float | None = None) -> bool:
        """Wait for the review that runs, if one does; False when it still does after that long.

        Args:
            timeout: How many seconds; for ever without it.
        """
        timeout = wait_of(limit(timeout))
        if self._own.loop.inside():
            raise WrongThread("wait_for_review")
        return self._own.review.wait(timeout)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the turn and the review that run, the session with all its processes, and release the conversation.
        It may be called again, and from any thread."""
        self._own.close()

    async def aclose(self) -> None:
        """The same for asyncio."""
        await run_on_own_thread(self._own.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- turns, on the loop ------------------------------------------------------------------------------------------

    def _ask_for(
        self, said: UserInput, options: dict[str, Any], caller: asyncio.AbstractEventLoop | None
    ) -> tuple[AgentTurn, Future[ConversationResult]]:
        turn = AgentTurn(checked_input("user_message", said), options, caller)
        if self.closed:
            raise AgentClosed
        if not self._own.loop.started:
            self._own.guard()
        return turn, self._own.loop.submit(lambda: self._wait_and_run(turn))

    async def _wait_and_run(self, turn: AgentTurn) -> ConversationResult:
        turn.task = asyncio.current_task()
        if turn.stopped:
            raise asyncio.CancelledError
        if self._waiting >= MAX_WAITING:
            raise AgentBusy(self._waiting)
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            if self.closed:
                raise AgentClosed
            turn.begin()
            self._own.turn = turn
            result = await self._run(turn)
            if self._sink is not None:
                await self._sink.caught_up()
            return result
        finally:
            self._own.turn = None
            self._turns.release()

    async def _run(self, turn: AgentTurn) -> ConversationResult:
        first = await self._own.transcript.load()
        steered, self._steered = self._steered, []
        said = user_message(steered, turn.user_input)
        try:
            await self._own.transcript.begin(said)
        except BaseException:
            self._steered = steered + self._steered
            raise
        remembers = self._memory is not None
        if first:
            self.hydrate(self.messages[:-1], remembers=remembers)
        self.count_user_turn(remembers=remembers)
        try:
            result = await turn.run(await self._live_session(), said["content"], self.timeouts.interrupt)
        except Exception as error:
            key = self._choice.api_key
            why = clean(str(error) or type(error).__name__, [key] if key else [])
            # What a runtime says of itself is in the result; for anything else somebody will want to know where it was.
            foreseen = isinstance(error, TreadleError)
            where = None if foreseen else traceback.extract_tb(error.__traceback__)[-1]
            logger.log(logging.DEBUG if foreseen else logging.WARNING, "a turn could not be run: %s (%s)", why, where)
            fault = error.fault if isinstance(error, RuntimeFault) else None
            result = TurnResult(error=why, should_retire=True, fault=fault)
            return await self._finish_turn(turn, said, result, failed=True)
        return await self._finish_turn(turn, said, result)

    async def _live_session(self) -> Session:
        composed = (self._choice, self.instructions, self.model, self.cwd, self.sandbox)
        if self.session is not None and self._composed not in (None, composed):
            await self._own.drop_session()
            self._own.transcript.notices.append(
                "The settings have changed: a new session goes on with this conversation."
            )
        elif getattr(self.session, "is_over", False):
            # Nothing was asked of it yet, so nothing can be half done.
            await self._own.drop_session()
            self._own.transcript.notices.append(
                "The runtime has ended since the last turn: a new session goes on with this conversation."
            )
        if self.session is None:
            self._prompt = await run_on_own_thread(self._compose)
            self._own.transcript.notices += self._prompt.notices
            runtime = self._choice.make(self.model, self.timeouts.tool)
            if not isinstance(self._choice.given, str):
                self.runtime_name = runtime.name
            opening = Opening(
                resume=self._own.transcript.thread_to_resume(runtime.name),
                history=tuple(self.messages[:-1]),
                before_thread=self._own.transcript.before_thread,
                instructions=self._prompt.instructions,
                tools=self._prompt.tools,
                cwd=self.cwd,
                model=self.model,
                sandbox=self.sandbox,
            )
            self.session = Session(
                runtime,
                opening=opening,
                timeouts=self.timeouts,
                clock=self._clock,
                approvals=approvals_of(self._approvals, self._own),
                sink=self._sink,
            )
            self._composed = composed
        return self.session

    def _compose(self) -> Prompt:
        memory, skills = self.memory, self.skills
        words, notices = compose(self.instructions, memory, skills)
        store = self._own.transcript.store
        tools = offered_tools(memory, skills, store, self._tools.values(), self.tool_names.__contains__)
        return Prompt(words, tools, tuple(notices))

    async def _finish_turn(
        self, asked: AgentTurn, said: Message, turn: TurnResult, *, failed: bool = False
    ) -> ConversationResult:
        """What happens after every turn, whichever runtime ran it and however it ended."""
        added = close_calls(without_echo(turn.projected_messages, said))
        completed = not turn.interrupted and turn.error is None
        self.count_tools(turn.tool_iterations, called_tools(added))
        state: TurnState = "done" if completed else "interrupted" if turn.interrupted else "failed"
        live = self.session
        # A session that somebody else has put in its place may have no runtime to name.
        runtime = None if live is None else getattr(getattr(live, "runtime", None), "name", self.runtime_name)
        try:
            await self._own.transcript.end(
                added,
                state,
                None if runtime is None else str(runtime),
                turn.thread_id,
                opened=asked.opened,
                replaced=turn.should_retire,
            )
        finally:
            if turn.should_retire:
                await self._own.drop_session()
        if completed and turn.final_text:
            self._maybe_review()
        final_response = turn.final_text
        if failed:  # the turn could not be run at all: what happened, and the way back
            other = "" if self.runtime_name == "auto" else ' (agent.use_runtime("auto"))'
            final_response = (
                f"The turn could not be run: {turn.error or ''}\nThe next message starts a new session, which is sent "
                f"what was said before. If that fails too, go on without {self.runtime_name}: `runtime auto`{other}."
            )
        return ConversationResult(
            final_response=final_response,
            messages=list(self.messages),
            api_calls=0 if failed else 1,
            completed=completed,
            partial=not completed,
            interrupted=turn.interrupted,
            error=turn.error,
            thread_id=turn.thread_id,
            turn_id=turn.turn_id,
            usage=turn.usage,
            notices=[*turn.notices, *self._own.transcript.take_notices()],
            fault=turn.fault,
        )

    def _maybe_review(self) -> None:
        memory = self._memory is not None and self.memory_is_due()
        skills = SKILL_TOOL in self.tool_names and self.skills_are_due()
        if not self.review or not (memory or skills):
            return
        snapshot = [dict(message) for message in self.messages]
        try:
            started = self.spawn_background_review(
                messages_snapshot=snapshot, review_memory=memory, review_skills=skills
            )
        except Exception as error:
            logger.warning("a review could not be started: %s", error or type(error).__name__)
            return
        if started is not False:  # one that says nothing has started
            self.reviewed(memory=memory, skills=skills)

    async def _steer(self, said: str) -> bool:
        session = self.session
        if session is not None and self._own.turn is not None:
            try:
                async with asyncio.timeout(self.timeouts.request):
                    if await session.steer(said):
                        return True
            except Exception as error:
                logger.warning("the turn could not be steered: %s", error or type(error).__name__)
        if len(self._steered) >= MAX_WAITING:
            raise AgentBusy(len(self._steered))
        self._steered.append(said)
        return False


# --- the outcome of a turn -------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ConversationResult:
    """What came of a turn, for whoever shows it.

    Args:
        final_response: The answer. When the turn could not be run at all: what happened, and the way back.
        messages: The whole conversation, this turn included.
        api_calls: How many turns the runtime was asked for: 1, or 0 when that failed.
        completed: Whether the turn came to its end, without an interrupt or an error.
        partial: The opposite.
        interrupted: Whether it was ended before it was done.
        error: What went wrong and what to do about it; None when nothing did.
        thread_id: The runtime's id of the thread.
        turn_id: The runtime's id of the turn.
        usage: The tokens of this turn; None when the runtime did not tell.
        notices: What people should know besides, such as what a review has learned.
        fault: The same as `error` in parts, for programs (`kind`, `exit_code`, `resets_at`, …); None when nothing went
            wrong, and for an error of the program itself.
    """

    final_response: str
    messages: list[Message]
    api_calls: int = 1
    completed: bool = True
    partial: bool = False
    interrupted: bool = False
    error: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    usage: Usage | None = None
    notices: list[str] = field(default_factory=list)
    fault: Fault | None = None
