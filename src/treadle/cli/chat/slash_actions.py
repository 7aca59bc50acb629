"""What the slash commands do. Each is a method of `SlashActions` that is named like its command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.chat_input import (
    SLASH_COMMANDS,
    Entered,
    in_folder,
    prompt_arguments,
    prompt_commands,
    prompt_usage,
    soon,
)
from treadle.cli.chat.chat_session import ChatMessage, ChatSession
from treadle.cli.chat.desktop import copy
from treadle.cli.chat.git_changes import GitChanges
from treadle.cli.chat.picker import Choice, threads_to_pick
from treadle.cli.chat.screen import ChatScreen, Option
from treadle.cli.problem import Problem, problem_of
from treadle.cli.terminal import Colors
from treadle.cli.thread_choice import short_id, thread_to_resume
from treadle.cli.threads.page_output import export_file, page_for, page_pieces
from treadle.cli.threads.text_page import MAX_WIDTH, TextPage, markdown_for
from treadle.cli.threads.thread_library import ThreadLibrary
from treadle.cli.turn.rich_blocks import Hanging, diff_rows, file_text, note, signed
from treadle.cli.workplace import workplace
from treadle.config.environment_settings import LOCAL
from treadle.pages.figures import count, plural
from treadle.pages.page import title_line, title_of
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import NOTE, RUNNING
from treadle.protocol.app.item_parts import TextUserInput
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionSource,
    CommandExecutionThreadItem,
    UserMessageThreadItem,
)
from treadle.protocol.app.models import Model
from treadle.protocol.app.thread_history import RevertedFile
from treadle.protocol.app.turns import Turn

PolicyOf: TypeAlias = Callable[[str], Struct]

MAX_DIFF_LINES: Final = 2000
# Of a thread that is gone on with.
LAST_TURNS: Final = 10
# Through which the last turn is looked for that is no command of the user's own.
MAX_TURNS: Final = 50
# Files that are listed before they are put back, and others that are not.
MAX_LISTED: Final = 30
# Of a prompt that is sent; the rest is in the thread.
MAX_CHARACTERS: Final = 4000
_MEANINGS: Final = {
    "read-only": "read anything, change nothing",
    "workspace-write": "change files in the workspace, without network",
    "danger-full-access": "anything, without a sandbox",
    "untrusted": "before every command that is not known to be harmless",
    "on-request": "when something has to leave the sandbox",
    "never": "never; what the sandbox forbids fails",
}
# What is chosen together, as Codex calls it.
_PRESETS: Final = {
    "Read Only": ("read-only", "on-request"),
    "Ask for approval": ("workspace-write", "on-request"),
    "Full Access": ("danger-full-access", "never"),
}
# What would become of a file.
_REVERTING: Final = {"restore": "restore", "recreate": "make again", "delete": "remove", "skip": "leave"}
# They go to another thread, or begin a turn that takes nothing.
_ENTERING: Final = ("new", "resume", "fork", "compact", "undo", "review", "init")
IMPLEMENT: Final = "Implement the plan."
INIT: Final = """\
Write a file AGENTS.md for this repository: what an agent, or a new contributor, has to know to work here.

Look at the repository first, and say only what is true of it. Title it "Repository Guidelines"; use short sections with
headings, 200 to 400 words in all, with commands and paths as examples. Leave out what does not apply:
- how the project is laid out: source, tests, assets
- the commands to build, to test and to run it
- style and names
- how tests are written and run
- commits and pull requests, as the history shows them"""
_KEYS: Final = (
    ("Enter", "send; while the agent works: add to what it does"),
    ("Alt-Enter, Ctrl-J or \\ at the end", "a new line"),
    ("Esc or Ctrl-C", "interrupt the agent"),
    ("@", "name a file; a picture is sent along"),
    ("!", "run a command of the shell yourself: !git status"),
    ("Up, Down, Ctrl-R", "what you typed before"),
    ("Ctrl-Z", "put the session in the background (fg brings it back)"),
    ("Ctrl-D, or Ctrl-C twice", "leave"),
)


class SlashActions:
    """The commands. `policy_of` makes the policy of a sandbox mode, with what is configured for it."""

    def __init__(self, session: ChatSession, screen: ChatScreen, library: ThreadLibrary, policy_of: PolicyOf) -> None:
        self._session = session
        self._screen = screen
        self._library = library
        self._policy_of = policy_of
        self._parents: dict[str, str] = {}  # of the agents that were gone to
        self.offers_plan: bool = False
        """Whether the question about a plan is open."""

    async def run(self, entered: Entered) -> None:
        """Run a command. Raises what the SDK raises, which the session shows."""
        name, argument = entered.command.name, entered.argument
        if name not in _ENTERING or not self._busy(name):
            try:
                await getattr(self, f"_{name}")(argument)
            except (Problem, OSError) as error:  # such as a file that cannot be written
                problem = problem_of(error)
                self._note(f"{problem.what}: {problem.why}" if problem.why else problem.what)

    def _busy(self, name: str) -> bool:
        """Whether a turn runs, which this command has to wait for."""
        if self._session.working:
            self._note(f"the agent is working; Esc interrupts it, then /{name} can be used")
        return self._session.working

    def _note(self, text: str) -> None:
        self._screen.print(note(text), "")

    # --- looking ---

    async def _help(self, _: str) -> None:
        rows = [(f"/{command.name} {command.argument}".rstrip(), command.summary) for command in SLASH_COMMANDS]
        for name, prompt in (await soon(self._session.mcp_prompts)).items():
            about = prompt.description or prompt.title or f"a prompt of the MCP server {prompt.server}"
            rows.append((f"/{name} {prompt_usage(prompt)}".rstrip(), about))
        self._screen.print(*_table(rows, self._screen.width), "", *_table(_KEYS, self._screen.width), "")

    async def _status(self, _: str) -> None:
        facts = self._session.facts
        effort = f", effort {facts.effort}" if facts.effort else ""
        rows = [
            ("model", f"{facts.model} ({facts.provider}{effort})"),
            ("where", facts.place),
            ("sandbox", f"{facts.sandbox}: {_MEANINGS.get(facts.sandbox, 'as its profile says')}"),
            ("approvals", f"{facts.approvals}: {_MEANINGS.get(facts.approvals, 'as its rules say')}"),
            ("thread", f"{facts.id}{f' ({facts.name})' if facts.name else ''}"),
        ]
        if facts.usage is not None:
            total = facts.usage.total
            cached = f" ({count(total.cached_input_tokens)} cached)" if total.cached_input_tokens else ""
            tokens = f"{count(total.input_tokens)} in{cached}, {count(total.output_tokens)} out"
            rows.append(("tokens", tokens))
        if facts.context_left is not None and facts.usage is not None:
            window = count(facts.usage.model_context_window or 0)
            rows.append(("context", f"{facts.context_left}% of {window} left"))
        if facts.cost:
            rows.append(("cost", facts.cost))
        self._screen.print(*_table(rows, self._screen.width), "")

    async def _diff(self, argument: str) -> None:
        changes = None
        if argument != "turn":
            changes = await GitChanges(self._session.client, self._session.facts).read()
            if changes is None:
                self._note("this is no git repository; what the last turn changed:")
        if changes is None:
            changes = self._session.last_diff
        if not changes.strip():
            self._note("nothing is changed")
            return
        lines = printable(changes).splitlines()
        more = [note(f"… {len(lines) - MAX_DIFF_LINES} more lines")] if len(lines) > MAX_DIFF_LINES else []
        self._screen.print(*diff_rows(lines[:MAX_DIFF_LINES]), *more, "")

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
            models = [model for model in (await self._session.client.model_list()).data if not model.hidden]
            now = self._session.facts.model
            choices = [Choice(each.model, each, about=f"{each.display_name}: {each.description}") for each in models]
            taken: Model | None = await self._pick("Which model?", choices, now)
            if taken is None:
                return
            name = taken.model
            efforts = [
                Choice(str(each.reasoning_effort), str(each.reasoning_effort), about=each.description)
                for each in taken.supported_reasoning_efforts
            ]
            if len(efforts) > 1:
                title, default = f"How much shall {printable_line(name)} think?", str(taken.default_reasoning_effort)
                at_work = self._session.facts.effort if name == now else None
                effort = await self._pick(title, efforts, at_work or "", default=default)
                if effort is None:
                    return
        effort = effort.strip()
        await self._session.change(model=name, **({"effort": effort} if effort else {}))
        self._note(f"from now on: {name}{f', effort {effort}' if effort else ''}")

    async def _environment(self, argument: str) -> None:
        name, _, directory = argument.partition(" ")
        if not name:
            choices = [
                Choice(each.environment_id, each.environment_id, about=f"{each.kind}\n{each.error or each.status}")
                for each in await self._session.environments()
            ]
            taken = await self._pick("Where shall the agent work?", choices)
            if taken is None:
                return
            name = taken
        directory = directory.strip() or (self._session.directory if name == LOCAL else "")
        place = await workplace(self._session.client, name, directory)
        self._session.move(place)
        self._note(f"from the next message on: {printable_line(self._session.facts.place)}")

    async def _permissions(self, _: str) -> None:
        facts = self._session.facts
        now = next((name for name, given in _PRESETS.items() if given == (facts.sandbox, facts.approvals)), "")
        choices = [
            Choice(name, name, about=f"commands may {_MEANINGS[mode]}\nyou are asked {_MEANINGS[policy]}")
            for name, (mode, policy) in _PRESETS.items()
        ]
        taken = await self._pick("What may the agent do?", choices, now)
        if taken is not None:
            mode, policy = _PRESETS[taken]
            await self._session.change(sandboxPolicy=self._policy_of(mode), approvalPolicy=policy)
            self._note(f"from now on: {mode}, approvals {policy}")

    async def _sandbox(self, argument: str) -> None:
        mode = await self._one_of("sandbox", argument, "What may commands do?", self._session.facts.sandbox)
        if mode is not None:
            await self._session.change(sandboxPolicy=self._policy_of(mode))
            self._note(f"from now on: {mode}")

    async def _approvals(self, argument: str) -> None:
        policy = await self._one_of("approvals", argument, "When are you asked?", self._session.facts.approvals)
        if policy is not None:
            await self._session.change(approvalPolicy=policy)
            self._note(f"from now on: {policy}")

    async def _one_of(self, name: str, argument: str, title: str, now: str) -> str | None:
        known = next(command.choices for command in SLASH_COMMANDS if command.name == name)
        if argument in known:
            return argument
        if argument:
            self._note(f"{printable_line(argument)} is none; there are {', '.join(known)}")
            return None
        taken = await self._pick(title, [Choice(word, word, about=_MEANINGS[word]) for word in known], now)
        return None if taken is None else str(taken)

    async def _pick(self, title: str, choices: Sequence[Choice], now: str = "", *, default: str = "") -> Any:
        """Choose one; the mark begins at that of now, else at a default."""
        marked = next((place for place, choice in enumerate(choices) if choice.label == (now or default)), 0)
        details = {default: "default", now: "current"}
        shown = [structs.replace(each, detail=details.get(each.label, each.detail)) for each in choices]
        return await self._screen.pick(title, shown, marked=marked)

    async def _plan(self, argument: str) -> None:
        wanted = argument != "off"
        if wanted != self._session.facts.plans:
            await self._session.set_mode("plan" if wanted else "default")
            self._note(
                "plan mode: it looks, asks and proposes, and changes nothing; /plan off ends it"
                if wanted
                else "plan mode is off"
            )
        if wanted and argument:
            self._screen.print(user_block(argument), "")
            await self._session.send(ChatMessage(argument))

    async def offer_plan(self) -> None:
        """Ask whether a plan that was proposed is to be done. What is typed instead is a no."""
        options = (Option("y", "yes, implement it"), Option("n", "no, stay in plan mode"))
        self.offers_plan = True
        try:
            taken = await self._screen.choose("Implement this plan?", options, first_marked=False)
        finally:
            self.offers_plan = False
        if taken is options[0]:
            await self._session.set_mode("default")
            self._screen.print(user_block(IMPLEMENT), "")
            await self._session.send(ChatMessage(IMPLEMENT))

    # --- work ---

    async def _shell(self, command: str) -> None:
        if not command:
            self._note("a command of the shell stands behind the !, such as !git status")
            return
        await self._session.client.thread_shell_command({"threadId": self._session.facts.id, "command": command})

    async def _review(self, instructions: str) -> None:
        custom = {"type": "custom", "instructions": instructions}
        target = custom if instructions else await self._review_target()
        if target is not None:
            await self._session.review(target)

    async def _review_target(self) -> dict[str, Any] | None:
        git = GitChanges(self._session.client, self._session.facts)
        kinds = (
            "Review against a base branch",
            "Review uncommitted changes",
            "Review a commit",
            "Custom review instructions",
        )
        match await self._pick("Select a review preset", [Choice(kind, kind) for kind in kinds], default=kinds[1]):
            case "Review against a base branch":
                branches = [Choice(name, name) for name in await git.branches()]
                branch = await self._pick("Select a base branch", branches) if branches else None
                if not branches:
                    self._note("there is no other branch")
                return {"type": "baseBranch", "branch": branch} if branch else None
            case "Review uncommitted changes":
                return {"type": "uncommittedChanges"}
            case "Review a commit":
                commits = [Choice(title, (sha, title), sha[:7]) for sha, title in await git.commits()]
                commit = await self._pick("Select a commit to review", commits) if commits else None
                if not commits:
                    self._note("there is no commit")
                return {"type": "commit", "sha": commit[0], "title": commit[1]} if commit else None
            case "Custom review instructions":
                text = await self._screen.ask_text("what to look for:")
                return {"type": "custom", "instructions": text} if text else None
        return None

    async def _undo(self, _: str) -> None:
        """Take back the last turn, with what it has changed in files, after a look at that."""
        thread_id, client = self._session.facts.id, self._session.client
        # Commands that the user has run since are no turn to take back: they go along with it.
        turns = await self._last_turns(MAX_TURNS)
        place, turn = next(
            ((place, turn) for place, turn in enumerate(turns) if not all(map(_is_of_user, turn.items))), (0, None)
        )
        if turn is None:
            self._note("there is no turn to take back")
            return
        revert = {"threadId": thread_id, "beforeTurnId": turn.id}
        preview = (await client.thread_revert({**revert, "files": True, "preview": True})).files
        options = [Option("c", "take back the conversation alone"), Option("n", "leave it as it is")]
        about: list[RenderableType] = []
        if not preview:  # a server that cannot
            about = [note("this server puts no files back")]
        elif preview.unavailable is not None:
            about = [note(f"files cannot be put back: {preview.unavailable}")]
        else:
            about = self._preview(preview.changes)
            if any(each.action != "skip" for each in preview.changes):
                options.insert(0, Option("y", "take back the turn and put these files back"))
        messages = [item for item in turn.items if isinstance(item, UserMessageThreadItem)]
        said = "\n".join(part.text for item in messages[:1] for part in item.content if isinstance(part, TextUserInput))
        if place:
            about.insert(0, note(f"with {plural(place, 'command')} that you have run since"))
        if said:
            about.insert(0, user_block(title_line(said)))
        taken = await self._screen.choose("Undo the last turn?", options, about=about, first_marked=False)
        if taken is None or taken.key == "n":
            self._note("nothing was taken back")
            return
        with_files = taken.key == "y"
        done = (await client.thread_revert({**revert, **({"files": True} if with_files else {})})).files
        if with_files and done:
            left = sum(change.action == "skip" for change in done.changes)
            put = f"{plural(len(done.changes) - left, 'file')} put back{f', {left} left as they are' if left else ''}"
            self._note(f"the last turn is taken back; {put}")
        else:
            self._note("the last turn is taken back; files are as they were")
        if said and not self._screen.buffer.text:
            self._screen.buffer.insert_text(said)

    def _preview(self, changes: Sequence[RevertedFile]) -> list[RenderableType]:
        """What would become of the files; those that stay as they are come last, where they are seen."""
        rows: list[RenderableType] = []
        for stays in (False, True):
            some = [change for change in changes if (change.action == "skip") is stays]
            rows += [self._reverted(change) for change in some[:MAX_LISTED]]
            if len(some) > MAX_LISTED:
                rows.append(note(f"… {len(some) - MAX_LISTED} more to {'leave' if stays else 'put back'}"))
        return rows or [note("the turn has changed no files (those that git ignores are not looked at)")]

    def _reverted(self, change: RevertedFile) -> RenderableType:
        """What would become of a file."""
        action = _REVERTING.get(str(change.action), str(change.action))
        reason = f": {printable_line(change.reason)}" if change.reason else ""
        name = file_text(change.path, os.path.relpath(change.path, self._session.facts.folder))
        return signed(NOTE if change.action == "skip" else RUNNING, Text.assemble(f"{action} ", name, (reason, "dim")))

    async def _init(self, _: str) -> None:
        if await GitChanges(self._session.client, self._session.facts).has("AGENTS.md"):
            self._note("AGENTS.md is here already; it is left as it is")
            return
        self._screen.print(user_block(short(INIT)), "")
        await self._session.send(ChatMessage(INIT))

    async def _copy(self, _: str) -> None:
        items = (item for turn in await self._last_turns(LAST_TURNS) for item in reversed(turn.items))
        answers = (item.text for item in items if isinstance(item, AgentMessageThreadItem) and item.text.strip())
        answer = next(answers, None)
        if answer is None:
            self._note("there is no answer yet to copy")
            return
        self._note(await copy(answer, self._screen.send, os.environ))

    async def _last_turns(self, count: int) -> Sequence[Turn]:
        """So many turns with their items, the last one first."""
        params = {"threadId": self._session.facts.id, "limit": count, "sortDirection": "desc", "itemsView": "full"}
        return (await self._session.client.thread_turns_list(params)).data

    async def _export(self, argument: str) -> None:
        facts = self._session.facts
        thread = await self._library.read(facts.id)
        if thread is None or not self._session.has_turns:
            self._note("nothing was said yet")
            return
        target = in_folder(facts.cwd, argument or f"thread-{short_id(facts.id)}.md")
        page = page_for(None, target)
        heading = await self._library.heading(thread)
        with export_file(target, force=False) as file:
            async with aclosing(page_pieces(self._library, heading, page)) as pieces:
                async for piece in pieces:
                    file.write(piece)
        self._screen.print(Hanging(Text("· ", "dim"), Text.assemble(("written: ", "dim"), file_text(str(target)))), "")

    # --- what there is ---

    async def _mcp(self, _: str) -> None:
        params = {"threadId": self._session.facts.id, "detail": "toolsAndAuthOnly"}
        servers = (await self._session.client.mcp_server_status_list(params)).data
        rows = []
        for server in servers:
            status = str(server.runtime_status or "not started")
            tools = server.tools_error or ", ".join(sorted(server.tools)) or "no tools"
            rows.append((printable_line(server.name), f"{status}; {tools}"))
        if not rows:
            self._note("no MCP server is configured; treadle mcp add NAME -- COMMAND adds one")
            return
        self._screen.print(*_table(rows, self._screen.width), "")

    async def _skills(self, _: str) -> None:
        facts = self._session.facts
        params = {"cwds": [facts.cwd]} if facts.elsewhere is None else {"threadId": facts.id}
        listed = (await self._session.client.skills_list(params)).data
        for error in (error for entry in listed for error in entry.errors):
            self._note(f"{error.path} cannot be used: {error.message}")
        skills = [skill for entry in listed for skill in entry.skills if skill.enabled]
        if not skills:
            self._note("there are no skills; treadle skills new NAME makes one")
            return
        choices = [Choice(each.name, each.name, str(each.scope), each.description) for each in skills]
        name = await self._pick("Which skill?", choices)
        if name is not None:
            self._screen.buffer.insert_text(f"${name} ")

    async def _agents(self, _: str) -> None:
        here = self._session.facts.id
        parent = self._parents.get(here)
        children = (await self._session.client.thread_list({"parentThreadId": here, "sortKey": "created_at"})).data
        choices = [
            Choice(child.agent_nickname or title_of(child), child.id, child.agent_role or "", title_of(child))
            for child in children
        ]
        if parent is not None:
            choices.append(Choice("back to the thread that began this one", parent))
        if not choices:
            self._note("this thread has begun no agents")
            return
        taken = await self._pick("Which agent?", choices)
        if taken is not None and not self._busy("agents"):
            if taken != parent:
                self._parents[taken] = here
            await self._enter(taken, as_it_is=True)

    # --- threads ---

    async def _new(self, _: str) -> None:
        left = self._session.facts.id
        await self._session.enter(None)
        self._note(f"a new thread; the one before: /resume {short_id(left)}")

    async def _fork(self, _: str) -> None:
        left = self._session.facts.id
        facts = await self._session.fork()
        self._note(f"this is a copy now: thread {facts.id}; the one before: /resume {short_id(left)}")

    async def _rename(self, argument: str) -> None:
        name = argument or await self._screen.ask_text("name:")
        if name:
            await self._session.client.thread_set_name(self._session.facts.id, name)
            self._note(f"this thread is called {name} now: treadle chat resume {shlex.quote(name)}")

    async def _compact(self, _: str) -> None:
        await self._session.compact()

    async def _resume(self, argument: str) -> None:
        here = self._session.facts
        if argument:
            thread = await thread_to_resume(self._session.client, argument)
            if thread is None:
                self._note(f"there is no thread {argument}; /resume alone lists some")
                return
        else:
            how = threads_to_pick(self._library, here.cwd, leave_out=here.id)
            thread = await self._screen.pick("Go on with which thread?", (), **how)
        if thread is not None:
            await self._enter(thread.id)

    async def _enter(self, thread_id: str, *, as_it_is: bool = False) -> None:
        facts = await self._session.enter(thread_id, as_it_is=as_it_is)
        await self.recap()
        self._note(f"thread {facts.id}, in {facts.place}")

    async def recap(self) -> None:
        """Show the thread as `treadle threads show` does, the last turns of a long one."""
        thread = await self._library.read(self._session.facts.id)
        if thread is None:
            return
        heading = await self._library.heading(thread, recent=True)
        width = min(self._screen.width, MAX_WIDTH)
        page = TextPage(Colors(self._screen.colors), markdown_for(width, colors=self._screen.colors), links=True)
        async with aclosing(page_pieces(self._library, heading, page, last=LAST_TURNS)) as pieces:
            self._screen.write("".join([piece async for piece in pieces]) + "\n")
        if len(heading.turns) > LAST_TURNS:
            self._note(
                f"the last {LAST_TURNS} of {len(heading.turns)} turns; all: treadle threads show {short_id(thread.id)}"
            )


def _table(rows: Sequence[tuple[str, str]], width: int) -> list[RenderableType]:
    """Names and what they mean; on a narrow terminal, long names stand on a line of their own."""
    column = min(max(len(name) for name, _ in rows) + 2, max(12, width // 3))
    shown: list[RenderableType] = []
    for name, text in rows:
        if len(name) >= column:
            shown.append(Hanging(Text("  "), Text(name, "cyan")))
            name = ""
        shown.append(Hanging(Text(f"  {name:{column}}", "cyan"), Text(printable(text))))
    return shown


def _is_of_user(item: object) -> bool:
    """Whether an item is a command that the user ran."""
    return isinstance(item, CommandExecutionThreadItem) and item.source == CommandExecutionSource.user_shell


def short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …"


def user_block(text: str, style: str = "bold") -> RenderableType:
    """A message of the user, as it stands above the answer."""
    return Hanging(Text("› ", "bold cyan"), Text(printable(text), style))
