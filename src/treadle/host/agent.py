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
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from treadle.agent.ids import new_id
from treadle.arguments import count, flag, folder, function, one_of, text, wrong_type
from treadle.client.own_thread import run_on_own_thread
from treadle.client.tools import Tool, tools_by_name
from treadle.errors import ArgumentValueError, TreadleError
from treadle.host.agent_callbacks import approvals_of, guarded, publish_summary
from treadle.host.agent_errors import AgentBusy, AgentClosed, WrongThread
from treadle.host.agent_resources import AgentResources
from treadle.host.agent_turn import AgentTurn
from treadle.host.ask import Approvals
from treadle.host.chat_messages import called_tools, checked_input, close_calls, said_after, user_message, without_echo
from treadle.host.clock import Clock
from treadle.host.conversation_result import ConversationResult, conversation_result
from treadle.host.counters import SKILL_TOOL, Counters
from treadle.host.fault_text import clean
from treadle.host.faults import RuntimeFault
from treadle.host.host_tools import tool_names
from treadle.host.loop_thread import LoopThread
from treadle.host.prompt import Prompt, compose, offered_tools
from treadle.host.runtime import Message, Opening, RuntimeEvent, UserInput
from treadle.host.runtime_choice import RuntimeChoice, RuntimeLike
from treadle.host.session import Session
from treadle.host.store_choice import choose_store, conversations_at, memory_at, skills_at
from treadle.host.timeouts import Timeouts
from treadle.host.transcript import Transcript
from treadle.host.turn_result import TurnResult

if TYPE_CHECKING:
    from treadle.host.conversations import ConversationStore, TurnState
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.reviewer import Reviewer
    from treadle.host.skills.skill_store import SkillStore

logger: logging.Logger = logging.getLogger(__name__)

MAX_WAITING: Final = 32
_SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")


class HostAgent(Counters):
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
        store: Where the conversation is kept: True for `conversations.db` in the home, a path, or a
            `ConversationStore`. Without it nothing is kept.
        model: The model to ask; else the runtime's own choice.
        cwd: Where commands run.
        timeouts: How long to wait for what.
        clock: Where to look for the time.
        instructions: What the model is told besides memory and skills.
        sandbox: What commands may do with files: `read-only`, `workspace-write` or `danger-full-access`.
        session_id: Which conversation of the store to go on with, or to begin; else a new one.
        on_event: Called with every event of a turn, for display; on the agent's loop, so it must not block.
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
        self._sink = None if on_event is None else guarded(function("on_event", on_event, "an event"))
        self._clock = clock
        self._composed: object = None
        self._prompt = Prompt()
        self._steered: list[str] = []
        self._waiting = 0
        self._turns = asyncio.Lock()
        shares = not isinstance(store, bool | str | os.PathLike)
        transcript = Transcript(session_id or new_id(), kept, owns_store=not shares)
        self._own = AgentResources(LoopThread("treadle agent"), transcript, timeouts or Timeouts())
        # At the end of the program it is `guard` that sees to it, and waits.
        weakref.finalize(self, self._own.abandon).atexit = False

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
            **options: For the runtime, such as `model` or `effort`.
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
            **options: For the runtime, such as `model` or `effort`.
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

        False when no turn runs or the runtime cannot take it: then it is kept, and said at the beginning of the user's
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
        """Go on with another runtime from the next turn on; it is told what was said before.

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
        if self._own.loop.inside():
            raise WrongThread("wait_for_review")
        return self._own.review.wait(timeout)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the turn and the review that run, the session with all its processes, and let go of the conversation.
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
            return await self._run(turn)
        finally:
            self._own.turn = None
            self._turns.release()

    async def _run(self, turn: AgentTurn) -> ConversationResult:
        first = await self._own.transcript.load()
        steered, self._steered = self._steered, []
        said = user_message(said_after(steered, turn.user_input))
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
            return await self._finish_turn(turn, said, self._failed(error), failed=True)
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
            self.session = self._make_session()
            self._composed = composed
        return self.session

    def _compose(self) -> Prompt:
        memory, skills = self.memory, self.skills
        words, notices = compose(self.instructions, memory, skills)
        store = self._own.transcript.store
        tools = offered_tools(memory, skills, store, self._tools.values(), self.tool_names.__contains__)
        return Prompt(words, tools, tuple(notices))

    def _make_session(self) -> Session:
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
        return Session(
            runtime,
            opening=opening,
            timeouts=self.timeouts,
            clock=self._clock,
            approvals=approvals_of(self._approvals, self._own),
            sink=self._sink,
        )

    def _runtime_of(self, session: Session) -> str:
        """One that somebody else has put in its place may have none to name."""
        return str(getattr(getattr(session, "runtime", None), "name", self.runtime_name))

    def _failed(self, error: Exception) -> TurnResult:
        key = self._choice.api_key
        said = clean(str(error) or type(error).__name__, [key] if key else [])
        # What a runtime says of itself is in the result; for anything else somebody will want to know where it was.
        foreseen = isinstance(error, TreadleError)
        where = None if foreseen else traceback.extract_tb(error.__traceback__)[-1]
        logger.log(logging.DEBUG if foreseen else logging.WARNING, "a turn could not be run: %s (%s)", said, where)
        fault = error.fault if isinstance(error, RuntimeFault) else None
        return TurnResult(error=said, should_retire=True, fault=fault)

    async def _finish_turn(
        self, asked: AgentTurn, said: Message, turn: TurnResult, *, failed: bool = False
    ) -> ConversationResult:
        """What happens after every turn, whichever runtime ran it and however it ended."""
        added = close_calls(without_echo(turn.projected_messages, said))
        completed = not turn.interrupted and turn.error is None
        self.count_tools(turn.tool_iterations, called_tools(added))
        state: TurnState = "done" if completed else "interrupted" if turn.interrupted else "failed"
        live = self.session
        try:
            await self._own.transcript.end(
                added,
                state,
                None if live is None else self._runtime_of(live),
                turn.thread_id,
                opened=asked.opened,
                retired=turn.should_retire,
            )
        finally:
            if turn.should_retire:
                await self._own.drop_session()
        if completed and turn.final_text:
            self._maybe_review()
        notices = self._own.transcript.take_notices()
        return conversation_result(turn, self.messages, notices, runtime=self.runtime_name, failed=failed)

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
