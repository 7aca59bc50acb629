"""What the slash commands do. Each is a method of `SlashActions` that is named like its command."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from treadle.cli.chat.chat_input import (
    SLASH_COMMANDS,
    Entered,
    prompt_arguments,
    prompt_commands,
    prompt_usage,
    soon,
)
from treadle.cli.chat.chat_session import ChatSession
from treadle.cli.chat.chat_thread import cost_words, tokens_words
from treadle.cli.chat.screen import ChatScreen, Option
from treadle.cli.terminal import printable, printable_line
from treadle.cli.turn.rich_blocks import Hanging, markdown, note
from treadle.client import AsyncAppServerClient
from treadle.protocol.app.item_parts import TextUserInput
from treadle.protocol.app.items import AgentMessageThreadItem, UserMessageThreadItem
from treadle.protocol.app.machine_methods import CommandExecResponse
from treadle.protocol.app.threads import Thread

PolicyOf: TypeAlias = Callable[[str], Struct]

# As many as there are digits to choose with.
MAX_LISTED: Final = 9
MAX_DIFF_LINES: Final = 2000
MAX_NEW_FILES: Final = 50
MAX_BYTES: Final = 1 << 20
TIMEOUT_MS: Final = 15_000
_GIT: Final = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_DIFF: Final = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")
# Of the last messages of a thread that is resumed, and of prompts; the rest is in the thread.
TURNS: Final = 3
MAX_CHARACTERS: Final = 4000
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
    """The commands. `policy_of` makes the policy of a sandbox mode, with what is configured for it."""

    def __init__(self, session: ChatSession, screen: ChatScreen, policy_of: PolicyOf) -> None:
        self._session = session
        self._screen = screen
        self._policy_of = policy_of

    async def run(self, entered: Entered) -> None:
        """Run a command. Raises what the SDK raises, which the session shows."""
        name, argument = entered.command.name, entered.argument
        if name in ("new", "resume", "fork", "compact") and self._session.working:
            self._note(f"the agent is working; Esc interrupts it, then /{name} can be used")
            return
        await getattr(self, f"_{name}")(argument)

    def _note(self, text: str) -> None:
        self._screen.print(note(text), "")

    # --- looking ---

    async def _help(self, _: str) -> None:
        rows = [(f"/{command.name} {command.argument}".rstrip(), command.summary) for command in SLASH_COMMANDS]
        for name, prompt in (await soon(self._session.mcp_prompts)).items():
            about = prompt.description or prompt.title or f"a prompt of the MCP server {prompt.server}"
            rows.append((f"/{name} {prompt_usage(prompt)}".rstrip(), about))
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
                self._note("this is no git repository; what the last turn changed:")
        if changes is None:
            changes = self._session.last_diff
        if not changes.strip():
            self._note("nothing is changed")
            return
        lines = printable(changes).splitlines()
        shown: list[RenderableType] = []
        for line in lines[:MAX_DIFF_LINES]:
            style = "bold" if line.startswith(("diff ", "+++ ", "--- ")) else _DIFF_STYLES.get(line[:1], "")
            shown.append(Padding(Text(line, style, overflow="fold"), (0, 0, 0, 2), expand=False))
        if len(lines) > MAX_DIFF_LINES:
            shown.append(note(f"… {len(lines) - MAX_DIFF_LINES} more lines"))
        self._screen.print(*shown, "")

    # --- prompts of MCP servers ---

    async def _mcp_prompt(self, typed: str) -> None:
        name, *rest = typed.split(None, 1)
        prompts = prompt_commands(await self._session.mcp_prompts())
        prompt = prompts.get(name)
        if prompt is None:
            there = f"there are {', '.join(f'/{each}' for each in prompts)}" if prompts else "the MCP servers have none"
            self._note(f"there is no prompt /{name}; {there}")
            return
        arguments = prompt_arguments(prompt, "".join(rest))
        if arguments is None:
            self._note(f"it is used like this: {f'/{name} {prompt_usage(prompt)}'.rstrip()}")
            return
        message = await self._session.mcp_prompt(prompt, arguments)
        if not message.prompt:
            self._note(f"the prompt /{name} is empty")
            return
        # It is sent as the user's own words, so the user sees it.
        texts = [part.text if isinstance(part, TextUserInput) else "(a picture)" for part in message.prompt]
        self._screen.print(user_block(short("\n".join(texts))), "")
        await self._session.send(message)

    # --- settings ---

    async def _model(self, argument: str) -> None:
        name, _, effort = argument.partition(" ")
        if not name:
            models = (await self._session.client.model_list()).data[:MAX_LISTED]
            taken = await self._choose("Which model?", [printable_line(model.model) for model in models])
            if taken is None:
                return
            name = models[taken].model
        await self._session.change(model=name, **({"effort": effort.strip()} if effort.strip() else {}))
        self._note(f"from now on: {name}{f', effort {effort.strip()}' if effort.strip() else ''}")

    async def _sandbox(self, argument: str) -> None:
        mode = await self._one_of("sandbox", argument, "What may commands do?")
        if mode is not None:
            await self._session.change(sandboxPolicy=self._policy_of(mode))
            self._note(f"from now on: {mode}")

    async def _approvals(self, argument: str) -> None:
        policy = await self._one_of("approvals", argument, "When are you asked?")
        if policy is not None:
            await self._session.change(approvalPolicy=policy)
            self._note(f"from now on: {policy}")

    async def _one_of(self, name: str, argument: str, title: str) -> str | None:
        known = next(command.choices for command in SLASH_COMMANDS if command.name == name)
        if argument in known:
            return argument
        if argument:
            self._note(f"{printable_line(argument)} is none; there are {', '.join(known)}")
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
        self._note(f"a new thread; the one before: /resume {left}")

    async def _fork(self, _: str) -> None:
        left = self._session.facts.id
        facts = await self._session.fork()
        self._note(f"this is a copy now: thread {facts.id}; the one before: /resume {left}")

    async def _compact(self, _: str) -> None:
        await self._session.compact()

    async def _resume(self, argument: str) -> None:
        here = self._session.facts
        if argument:
            threads = await self._session.find_threads(argument, here.cwd, limit=MAX_LISTED)
            none_found, title = f"there is no thread {argument}; /resume alone lists some", "Which of these?"
        else:
            found = await self._session.find_threads(None, here.cwd, limit=MAX_LISTED + 1)
            threads = tuple(thread for thread in found if thread.id != here.id)[:MAX_LISTED]
            none_found, title = (
                "there is no other thread in this directory; /resume ID goes to any",
                "Go on with which thread?",
            )
        if not threads:
            self._note(none_found)
            return
        is_clear = argument and len(threads) == 1
        thread_id = threads[0].id if is_clear else await self._chosen(title, threads)
        if thread_id is None:
            return
        facts = await self._session.enter(thread_id)
        last_messages = await recap(self._session.client, facts.id)
        self._screen.print(*last_messages, note(f"thread {facts.id}, in {facts.cwd}"), "")

    async def _chosen(self, title: str, threads: Sequence[Thread]) -> str | None:
        labels = []
        for thread in threads:
            seconds = time.time() - thread.updated_at
            units = ((86_400, "d"), (3_600, "h"), (60, "min"))
            ago = next((f"{int(seconds // unit)} {name} ago" for unit, name in units if seconds >= unit), "just now")
            labels.append(f"{printable_line(thread.name or thread.preview or '(nothing was said)')[:60]} · {ago}")
        taken = await self._choose(title, labels)
        return None if taken is None else threads[taken].id


def _table(rows: Sequence[tuple[str, str]]) -> list[RenderableType]:
    width = max(len(name) for name, _ in rows) + 2
    return [Hanging(Text(f"  {name:{width}}", "cyan"), Text(printable(text))) for name, text in rows]


class GitChanges:
    """The changes in a repository that are not committed, new files too.

    git runs where the agent's commands run, through the server, and may only read. The repository may be a stranger's:
    what it names as diff or text programs is not run.
    """

    def __init__(self, client: AsyncAppServerClient, cwd: str) -> None:
        self._client = client
        self._cwd = cwd

    async def read(self) -> str | None:
        """The changes as a diff; empty when nothing is changed, None outside of a repository."""
        if (await self._git("rev-parse", "--is-inside-work-tree")).exit_code != 0:
            return None
        tracked = await self._git(*_DIFF, "HEAD", "--")
        if tracked.exit_code != 0:  # there is no commit yet
            tracked = await self._git(*_DIFF, "--cached", "--")
        listed = await self._git("ls-files", "--others", "--exclude-standard", "-z")
        new = [path for path in listed.stdout.split("\0") if path]
        parts = [tracked.stdout]
        parts += [
            (await self._git(*_DIFF, "--no-index", "--", "/dev/null", path)).stdout for path in new[:MAX_NEW_FILES]
        ]
        if len(new) > MAX_NEW_FILES:
            parts.append(f"… and {len(new) - MAX_NEW_FILES} more new files\n")
        return "".join(parts)

    async def _git(self, *words: str) -> CommandExecResponse:
        return await self._client.command_exec(
            {
                "command": [*_GIT, *words],
                "cwd": self._cwd,
                "sandboxPolicy": {"type": "readOnly"},
                "outputBytesCap": MAX_BYTES,
                "timeoutMs": TIMEOUT_MS,
            }
        )


async def recap(client: AsyncAppServerClient, thread_id: str) -> list[RenderableType]:
    """The messages of the last turns of a thread, the oldest first: where the conversation is."""
    params = {"threadId": thread_id, "limit": TURNS, "sortDirection": "desc", "itemsView": "full"}
    turns = (await client.thread_turns_list(params)).data
    shown: list[RenderableType] = []
    for item in (item for turn in reversed(turns) for item in turn.items):
        if isinstance(item, UserMessageThreadItem):
            text = "\n".join(part.text for part in item.content if isinstance(part, TextUserInput))
            shown += [user_block(short(text)), ""]
        elif isinstance(item, AgentMessageThreadItem) and item.text.strip():
            shown += [markdown(short(item.text)), ""]
    return shown


def short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …"


def user_block(text: str, style: str = "bold") -> RenderableType:
    """A message of the user, as it stands above the answer."""
    return Hanging(Text("› ", "bold cyan"), Text(printable(text), style))
