"""What the slash commands do. Each is a method that is named like its command."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from treadle.cli.chat.chat_session import ChatSession
from treadle.cli.chat.git_changes import GitChanges
from treadle.cli.chat.key_question import Option
from treadle.cli.chat.recap import recap
from treadle.cli.chat.screen import ChatScreen
from treadle.cli.chat.slash_commands import COMMANDS, Entered
from treadle.cli.chat.thread_facts import cost_words, tokens_words
from treadle.cli.turn.turn_blocks import Hanging, note
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.threads import Thread

PolicyOf: TypeAlias = Callable[[str], Struct]

# As many as there are digits to choose with.
MAX_LISTED: Final = 9
MAX_DIFF_LINES: Final = 2000
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_MEANINGS: Final = {
    "read-only": "read anything, change nothing",
    "workspace-write": "change files in the workspace, without network",
    "danger-full-access": "anything, without a sandbox",
    "untrusted": "before every command that is not known to be harmless",
    "on-request": "when something has to leave the sandbox",
    "never": "never; what the sandbox forbids fails",
}
_KEYS: Final = (
    ("Enter", "send; while the agent works: add to what it does"),
    ("Alt-Enter, Ctrl-J or \\ at the end", "a new line"),
    ("Esc or Ctrl-C", "interrupt the agent"),
    ("@", "name a file; a picture is sent along"),
    ("Up, Down, Ctrl-R", "what you typed before"),
    ("Ctrl-Z", "put the session in the background (fg brings it back)"),
    ("Ctrl-D, or Ctrl-C twice", "leave"),
)


class SlashActions:
    """`policy_of` makes the policy of a sandbox mode, with what is configured for it."""

    def __init__(self, session: ChatSession, screen: ChatScreen, policy_of: PolicyOf) -> None:
        self._session = session
        self._screen = screen
        self._policy_of = policy_of

    async def run(self, entered: Entered) -> None:
        """Raises what the SDK raises, which the session shows."""
        name, argument = entered.command.name, entered.argument
        if name in ("new", "resume", "fork", "compact") and self._session.working:
            self._say(f"the agent is working; Esc interrupts it, then /{name} can be used")
            return
        await getattr(self, f"_{name}")(argument)

    def _say(self, text: str) -> None:
        self._screen.print(note(text), "")

    # --- looking ---

    async def _help(self, _: str) -> None:
        rows = [(f"/{command.name} {command.argument}".rstrip(), command.summary) for command in COMMANDS]
        self._screen.print(*_table(rows), "", *_table(_KEYS), "")

    async def _status(self, _: str) -> None:
        facts = self._session.facts
        effort = f", effort {facts.effort}" if facts.effort else ""
        rows = [
            ("model", f"{facts.model} ({facts.provider}{effort})"),
            ("where", facts.cwd),
            ("sandbox", f"{facts.sandbox}: {_MEANINGS.get(facts.sandbox, 'as its profile says')}"),
            ("approvals", f"{facts.approvals}: {_MEANINGS.get(facts.approvals, 'as its rules say')}"),
            ("thread", f"{facts.id}{f' ({facts.name})' if facts.name else ''}"),
        ]
        if facts.usage is not None:
            total = facts.usage.total
            cached = f" ({tokens_words(total.cached_input_tokens)} cached)" if total.cached_input_tokens else ""
            tokens = f"{tokens_words(total.input_tokens)} in{cached}, {tokens_words(total.output_tokens)} out"
            rows.append(("tokens", tokens))
        if facts.context_left is not None and facts.usage is not None:
            window = tokens_words(facts.usage.model_context_window or 0)
            rows.append(("context", f"{facts.context_left}% of {window} left"))
        if facts.usage is not None and (cost := cost_words(facts.usage.thread_cost_usd or facts.usage.cost_usd)):
            rows.append(("cost", cost))
        self._screen.print(*_table(rows), "")

    async def _diff(self, argument: str) -> None:
        changes = None
        if argument != "turn":
            changes = await GitChanges(self._session.client, self._session.facts.cwd).read()
            if changes is None:
                self._say("this is no git repository; what the last turn changed:")
        if changes is None:
            changes = self._session.last_diff
        self._screen.print(*_painted(changes), "") if changes.strip() else self._say("nothing is changed")

    # --- settings ---

    async def _model(self, argument: str) -> None:
        name, _, effort = argument.partition(" ")
        if not name:
            models = (await self._session.client.model_list()).data[:MAX_LISTED]
            taken = await self._choose("Which model?", [visible_line(model.model) for model in models])
            if taken is None:
                return
            name = models[taken].model
        await self._session.change(model=name, **({"effort": effort.strip()} if effort.strip() else {}))
        self._say(f"from now on: {name}{f', effort {effort.strip()}' if effort.strip() else ''}")

    async def _sandbox(self, argument: str) -> None:
        mode = await self._one_of("sandbox", argument, "What may commands do?")
        if mode is not None:
            await self._session.change(sandboxPolicy=self._policy_of(mode))
            self._say(f"from now on: {mode}")

    async def _approvals(self, argument: str) -> None:
        policy = await self._one_of("approvals", argument, "When are you asked?")
        if policy is not None:
            await self._session.change(approvalPolicy=policy)
            self._say(f"from now on: {policy}")

    async def _one_of(self, name: str, argument: str, title: str) -> str | None:
        known = next(command.choices for command in COMMANDS if command.name == name)
        if argument in known:
            return argument
        if argument:
            self._say(f"{visible_line(argument)} is none; there are {', '.join(known)}")
            return None
        taken = await self._choose(title, [f"{word}: {_MEANINGS[word]}" for word in known])
        return None if taken is None else known[taken]

    async def _choose(self, title: str, labels: list[str]) -> int | None:
        options = [Option(str(number), label) for number, label in enumerate(labels, 1)]
        taken = await self._screen.choose(title, options) if options else None
        return None if taken is None else options.index(taken)

    # --- threads ---

    async def _new(self, _: str) -> None:
        left = self._session.facts.id
        await self._session.enter(None)
        self._say(f"a new thread; the one before: /resume {left}")

    async def _fork(self, _: str) -> None:
        left = self._session.facts.id
        facts = await self._session.fork()
        self._say(f"this is a copy now: thread {facts.id}; the one before: /resume {left}")

    async def _compact(self, _: str) -> None:
        await self._session.compact()

    async def _resume(self, argument: str) -> None:
        thread_id = await (self._named(argument) if argument else self._listed())
        if thread_id is None:
            return
        facts = await self._session.enter(thread_id)
        told = await recap(self._session.client, facts.id)
        self._screen.print(*told, note(f"thread {facts.id}, in {facts.cwd}"), "")

    async def _listed(self) -> str | None:
        here = self._session.facts
        found = await self._session.find_threads(None, here.cwd, limit=MAX_LISTED + 1)
        threads = [thread for thread in found if thread.id != here.id][:MAX_LISTED]
        if not threads:
            self._say("there is no other thread in this directory; /resume ID goes to any")
            return None
        return await self._chosen("Go on with which thread?", threads)

    async def _named(self, wanted: str) -> str | None:
        threads = await self._session.find_threads(wanted, self._session.facts.cwd, limit=MAX_LISTED)
        if not threads:
            self._say(f"there is no thread {wanted}; /resume alone lists some")
            return None
        return threads[0].id if len(threads) == 1 else await self._chosen("Which of these?", threads)

    async def _chosen(self, title: str, threads: Sequence[Thread]) -> str | None:
        taken = await self._choose(title, [_line(thread, time.time()) for thread in threads])
        return None if taken is None else threads[taken].id


def _line(thread: Thread, now: float) -> str:
    words = visible_line(thread.name or thread.preview or "(nothing was said)")
    return f"{words[:60]} · {_ago(now - thread.updated_at)}"


def _ago(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name} ago"
    return "just now"


def _table(rows: Sequence[tuple[str, str]]) -> list[RenderableType]:
    width = max(len(name) for name, _ in rows) + 2
    return [Hanging(Text(f"  {name:{width}}", "cyan"), Text(visible(text))) for name, text in rows]


def _painted(diff: str) -> list[RenderableType]:
    lines = visible(diff).splitlines()
    shown: list[RenderableType] = [
        Padding(Text(line, _style(line), overflow="fold"), (0, 0, 0, 2), expand=False)
        for line in lines[:MAX_DIFF_LINES]
    ]
    if len(lines) > MAX_DIFF_LINES:
        shown.append(note(f"… {len(lines) - MAX_DIFF_LINES} more lines"))
    return shown


def _style(line: str) -> str:
    if line.startswith(("diff ", "+++ ", "--- ")):
        return "bold"
    return _DIFF_STYLES.get(line[:1], "")
