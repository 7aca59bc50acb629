"""`TurnRenderer`: a turn on a terminal. Notifications in; blocks that stay, and the lines of now, out.

It owns what is on the screen, not the screen: it reads no clock and writes nothing. One renderer may take several turns
of a thread, one after the other. `LiveTurn` draws it for `treadle exec`, the chat's screen for `treadle chat`.

An item goes from the lines of now to the blocks that stay when it has ended:

    item/started ──▶ running command, tool or patch ──▶ item/completed ──▶ block
    message deltas ──▶ MessageStream ──▶ finished paragraphs ──▶ blocks (held back where the answer goes elsewhere)
    turn/completed: what still runs becomes a block as well, and nothing is left of the lines of now
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.terminal import spinner
from treadle.cli.turn.output_view import MAX_LINE, Hint, OutputLines, hint_for, patch_hint
from treadle.cli.turn.rich_blocks import (
    Hanging,
    beneath,
    drawn,
    finished_part,
    hint_blocks,
    left_out,
    markdown,
    note,
    rendered,
    signed,
)
from treadle.cli.turn.turn_header import TurnUsage
from treadle.pages.figures import took
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import (
    DONE,
    FAILED,
    RUNNING,
    SIGN_STYLES,
    UNFINISHED,
    WARNING,
    ChangeBlock,
    CommandBlock,
    MessageBlock,
    NoteBlock,
    ThoughtBlock,
    ToolBlock,
    connection_text,
    hook_block,
    item_blocks,
    server_block,
)
from treadle.protocol.app.notifications import TurnPlanStep
from treadle.runners.progress import elapsed

# Of what is being thought and written now: so many rows at most, and on a small terminal fewer.
_THOUGHT_ROWS: Final = 4
_PLAN_ROWS: Final = 8
# Of what is being written, so much is rendered ten times a second; what is longer, such as a whole file, is shown raw.
_RENDERED: Final = 4000
_KEEP_THOUGHT: Final = 4000
# Of the output of a command that went well, and of one that did not: its last lines say what is wrong.
HEAD: Final = 6
TAIL: Final = 6
FAILED_TAIL: Final = 20
# Of a command of several lines, such as a script.
_SCRIPT: Final = 12
# Of the output of each command that runs.
_LIVE_TAIL: Final = 3
_WAITING: Final = "waiting for the model"
_PLAN_SIGNS: Final = {"completed": ("✔", "green"), "inProgress": ("▶", "cyan"), "pending": ("□", "dim")}
_PLAN_STYLES: Final = {"completed": "dim", "inProgress": "bold"}


class TurnRenderer:
    """The picture of a turn.

    Args:
        now: The time, in seconds from anywhere. The turn is shown to last since then, until `turn/started` comes.
        confinement: The type of the sandbox policy, to explain what it has stopped; None: nothing is explained.
        network: Whether the sandbox lets commands use the network.
        holds_answer: Whether the last message is shown by somebody else.
        key: What can be typed meanwhile.
    """

    def __init__(
        self,
        now: float,
        *,
        confinement: str | None = None,
        network: bool = False,
        holds_answer: bool = False,
        key: str = "Ctrl-C to interrupt",
    ) -> None:
        self._since = now
        self._holds_answer = holds_answer
        self._held: list[RenderableType] = []
        self._key = key
        self._confinement = confinement
        self._network = network
        self._commands: dict[str, RunningCommand] = {}
        self._tools: dict[str, str] = {}  # titles of calls that go on
        self._progress: dict[str, str] = {}  # what they last said of themselves
        self._servers: dict[str, None] = {}  # MCP servers that are being started
        self._changes: dict[str, tuple[ChangeBlock, ...]] = {}
        self._seen: set[str] = set()  # patches that somebody was asked about
        self._reasons: dict[str, str] = {}
        self._message = MessageStream(whole=holds_answer)
        self._thought = ""
        self._plan = PlanView()
        self._doing = _WAITING
        self._usage = TurnUsage()
        self.note: str = ""
        """A line below all others, as long as it is there."""

    # --- what happens ---

    def show(self, method: str, params: Any, now: float) -> list[RenderableType]:
        """Take a notification; the blocks that stay."""
        match method:
            case "turn/started":
                self._since, self.note = now, ""
                self._usage.begin()
            case "item/agentMessage/delta":
                self._doing = "writing"
                return self._message.add(params.delta)
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                self._doing = "thinking"
                self._thought = (self._thought + params.delta)[-_KEEP_THOUGHT:]
            case "item/reasoning/summaryPartAdded":
                self._thought += "\n"
            case "item/commandExecution/outputDelta" if params.item_id in self._commands:
                self._commands[params.item_id].output(params.delta)
            case "item/started":
                self._item_started(params.item, now)
                return self._release_held()
            case "item/completed":
                self._doing = _WAITING
                return self._item_completed(params.item, now)
            case "turn/plan/updated":
                return self._plan.update(params.plan)
            case "thread/tokenUsage/updated":
                self._usage.update(params.token_usage)
            case "error" if params.will_retry:
                # The model's stream was cut. What it had written so far, it writes again.
                again = "; the answer begins again" if self._message.rest else ""
                self._message, self._thought = MessageStream(whole=self._holds_answer), ""
                reason = f"{params.error.message} ({params.error.additional_details}){again}"
                return [*self._release_held(), note(reason, "")]
            case "mcpServer/startupStatus/updated" if params.status == "starting":
                self._servers[params.name] = None
            case "mcpServer/startupStatus/updated":
                self._servers.pop(params.name, None)
                server = server_block(params)
                return [] if server is None else drawn(server)
            case "hook/completed":
                hook = hook_block(params)
                return [] if hook is None else drawn(hook)
            case "item/mcpToolCall/progress" if params.item_id in self._tools:
                self._progress[params.item_id] = params.message
            case "thread/environment/disconnected" | "thread/environment/connected":
                return [note(connection_text(method, params.environment_id), "")]
            case "warning":
                return [signed(WARNING, Text(printable(params.message)))]
            case "item/autoApprovalReview/completed" if params.review.status == "denied" and params.target_item_id:
                why = f": {params.review.rationale}" if params.review.rationale else ""
                self.decided(params.target_item_id, f"the automatic reviewer said no{why}")
            case "turn/completed":
                return self._turn_completed(params.turn)
        return []

    def _hold(self, blocks: list[RenderableType]) -> list[RenderableType]:
        """A message may be the answer, until something else follows."""
        if not self._holds_answer:
            return blocks
        self._held += blocks
        return []

    def _release_held(self) -> list[RenderableType]:
        held, self._held = self._held, []
        return held

    def _item_started(self, item: Any, now: float) -> None:
        for block in item_blocks(item):
            match block:
                case CommandBlock():
                    self._commands[item.id] = RunningCommand(block, now)
                case ChangeBlock():
                    self._changes[item.id] = (*self._changes.get(item.id, ()), block)
                case ToolBlock() if block.running:
                    self._tools[item.id] = block.title
                case NoteBlock() if block.doing:
                    self._doing = block.doing

    def _item_completed(self, item: Any, now: float) -> list[RenderableType]:
        item_id = getattr(item, "id", "")
        self._tools.pop(item_id, None)
        self._progress.pop(item_id, None)
        self._changes.pop(item_id, None)
        why = self._reasons.pop(item_id, None)
        blocks = list(item_blocks(item))
        match blocks:
            case [MessageBlock(by="agent") as block]:
                message, self._message = self._message, MessageStream(whole=self._holds_answer)
                return self._hold(message.end(block.text))
            case [CommandBlock() as block]:
                command = self._commands.pop(item_id, None) or RunningCommand(block, now)
                hint = self._hint(block.output, block.cwd) if block.exit_code not in (0, None) else None
                return [*command.ended(block, why, hint), ""]
            case [ChangeBlock(status=status), *_]:
                # One that somebody has looked at is not shown whole again.
                shown = [drawn(block)[:1] if item_id in self._seen else drawn(block) for block in blocks]
                reason = [note(why)] if why and status != "completed" else []
                hint = patch_hint(self._confinement) if status == "failed" else None
                return [*(row for rows in shown for row in rows), *reason, *hint_blocks(hint), ""]
            case [ThoughtBlock()]:
                self._thought = ""
        return [row for block in blocks for row in drawn(block)]

    def _hint(self, output: str, cwd: str) -> Hint | None:
        return hint_for(output, cwd, self._confinement, network=self._network)

    def _turn_completed(self, turn: Any) -> list[RenderableType]:
        """End what goes on. Commands that still run are shown as such; of an answer that was cut off, all there is."""
        rest = self._hold(self._message.end(self._message.text))
        if turn.status != "completed":
            rest += self._release_held()
        for command in self._commands.values():
            rest += command.ended(command.block, None, None)
        self._commands.clear()
        self._tools.clear()
        self._progress.clear()
        self._servers.clear()
        self._changes.clear()
        self._message, self._thought = MessageStream(whole=self._holds_answer), ""
        if turn.status == "failed":
            why = "it failed" if turn.error is None else printable(turn.error.message)
            rest.append(signed(FAILED, Text(f"failed: {why}", "red")))
        elif turn.status == "interrupted":
            rest.append(signed(FAILED, Text("interrupted", "red")))
        return rest

    # --- questions about items ---

    def changes(self, item_id: str) -> tuple[ChangeBlock, ...] | None:
        """The patch that is asked about: requests for approval name it only by its id. It is seen then, so that it is
        not shown whole again when it is done."""
        found = self._changes.get(item_id)
        if found is not None:
            self._seen.add(item_id)
        return found

    def said(self, item_id: str) -> list[RenderableType]:
        """The output of a command that is asked about, where it was tried already."""
        command = self._commands.get(item_id)
        lines = [] if command is None else command.output_so_far()
        if command is None or not lines:
            return []
        hint = self._hint("\n".join(lines), command.block.cwd)
        return [note("it was tried, and has said:"), *beneath(lines), *hint_blocks(hint)]

    def decided(self, item_id: str, why: str) -> None:
        """Note why an item was refused: the reason is shown with the item when that ends."""
        self._reasons[item_id] = why

    def used(self, duration_ms: int | None) -> str:
        """What the turn has used: `1,200 tokens in, 34 out · $0.0123 · 1.5 s`."""
        return self._usage.text(duration_ms)

    # --- the lines of now ---

    def live(self, now: float, width: int, height: int) -> list[Text]:
        """The lines of now, for a terminal of this size; the last one has what goes on, and for how long."""
        room = max(0, height - 3)
        running = self._running(now, width, room)
        room -= len(running)
        plan = self._plan.live(min(_PLAN_ROWS, room))
        room -= len(plan)
        text = self._text(width, room) if room > 0 else []
        doing = "working" if running else self._doing
        facts = f"{doing} · {elapsed(now - self._since)}"
        status = Text.assemble((f"{spinner(now)} ", "cyan"), (f"{facts} · {self._key}", "dim"))
        return [*text, *running, *plan, status, *([Text(self.note, "bold")] if self.note else [])]

    def _running(self, now: float, width: int, room: int) -> list[Text]:
        commands = list(self._commands.values())
        each = max(1, room // len(commands)) if commands else 0
        shown = commands[: max(1, room - 1)] if len(commands) > room else commands
        lines = [line for command in shown for line in command.live(now, width, each)]
        if hidden := len(commands) - len(shown):
            lines.append(Text(f"… {hidden} more", "dim"))
        said = {item_id: printable_line(text)[:MAX_LINE] for item_id, text in self._progress.items()}
        running = [(title, said.get(item_id, "")) for item_id, title in self._tools.items()]
        running += [(f"MCP server {name}", "is starting") for name in self._servers]
        tools = [
            Text.assemble(
                (f"{RUNNING} ", SIGN_STYLES[RUNNING]), printable_line(title), (f" · {text}" if text else "", "dim")
            )
            for title, text in running
        ]
        return lines + tools[: max(0, room - len(lines))]

    def _text(self, width: int, room: int) -> list[Text]:
        """The end of what is being written, or thought."""
        text, style = self._message.rest.strip(), ""
        if text and len(text) <= _RENDERED:
            return rendered(markdown(text), width)[-room:]
        if not text:
            text, style, room = self._thought.replace("**", ""), "dim italic", min(room, _THOUGHT_ROWS)
        if not text.strip():
            return []
        end = printable(text[-(room + 1) * width * 2 :]).expandtabs(4)
        return rendered(Text(end.strip("\n"), style, overflow="fold"), width)[-room:]


class RunningCommand:
    """A command, and the beginning and the end of its output."""

    def __init__(self, block: CommandBlock, now: float) -> None:
        self.block = block
        self._since = now
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=FAILED_TAIL)
        self._lines = OutputLines()

    def output(self, delta: str) -> None:
        self._take(self._lines.add(delta))

    def live(self, now: float, width: int, room: int) -> list[Text]:
        """One line with what runs and for how long, and the last lines of its output."""
        time = took(now - self._since)
        title = Text(printable_line(self.block.command))
        title.truncate(max(8, width - 2 - len(time)), overflow="ellipsis")
        tail = [line for line in (*self._head[-_LIVE_TAIL:], *self._tail, self._lines.rest) if line.strip()]
        shown = tail[-min(_LIVE_TAIL, room - 1) :] if room > 1 else []
        return [
            Text.assemble((f"{RUNNING} ", SIGN_STYLES[RUNNING]), title, (time, "dim")),
            *(Text(f"  │ {printable_line(line[:MAX_LINE])}", "dim") for line in shown),
        ]

    def output_so_far(self) -> list[str]:
        """The beginning and the end of its output."""
        return [line[:MAX_LINE] for line in (*self._shortened(FAILED_TAIL), self._lines.rest) if line]

    def ended(self, block: CommandBlock, why: str | None, hint: Hint | None) -> list[RenderableType]:
        """The command as it stays.

        Args:
            block: The command as it ended.
            why: Why it was declined or has failed, if that is known.
            hint: What its output says about its sandbox.
        """
        self._take(self._lines.end(block.output))
        reason = f": {printable_line(why)}" if why else ""
        outcome = f" · {block.outcome}{reason}"
        if block.status == "inProgress":
            outcome = " · had not ended when the turn did"
        elif not block.failed:
            outcome = ""
        lines = printable(block.command).rstrip().split("\n")
        if len(lines) > _SCRIPT:
            lines[_SCRIPT - 1 :] = [left_out(len(lines) - _SCRIPT + 1)]
        sign = UNFINISHED if block.status == "inProgress" else FAILED if block.failed else DONE
        time = "" if block.duration_ms is None else took(block.duration_ms / 1000)
        title = Text.assemble(("\n".join(lines), "bold"), (outcome, "red" if block.failed else "dim"), (time, "dim"))
        output = beneath(self._shortened(FAILED_TAIL if block.failed else TAIL))
        return [signed(sign, title), *output, *hint_blocks(hint)]

    def _take(self, lines: list[str]) -> None:
        room = HEAD - len(self._head)
        self._head += lines[:room]
        self._tail += lines[room:]

    def _shortened(self, tail: int) -> list[str]:
        last = list(self._tail)[-tail:]
        hidden = self._lines.count - len(self._head) - len(last)
        lines = [*self._head, *([left_out(hidden)] if hidden else []), *last]
        return [line[:MAX_LINE] for line in lines]


class PlanView:
    """The plan of a turn. It is shown whole when it is made or remade; later only what has been done."""

    def __init__(self) -> None:
        self._steps: tuple[TurnPlanStep, ...] = ()

    def update(self, steps: Sequence[TurnPlanStep]) -> list[RenderableType]:
        before, self._steps = self._steps, tuple(steps)
        if [step.step for step in before] != [step.step for step in steps]:
            return [Text("plan", "bold cyan"), *(Hanging(*_plan_step(step)) for step in steps), ""] if steps else []
        done = {step.step for step in before if step.status == "completed"}
        ticked = [step for step in steps if step.status == "completed" and step.step not in done]
        return [*(Hanging(*_plan_step(step)) for step in ticked), ""] if ticked else []

    def live(self, room: int) -> list[Text]:
        """The whole plan; where that does not fit, what comes around the step of now; nothing when all is done."""
        if room < 1 or all(step.status == "completed" for step in self._steps):
            return []
        steps = [Text.assemble(*_plan_step(step)) for step in self._steps]
        if len(steps) <= room:
            return steps
        now = next((n for n, step in enumerate(self._steps) if step.status != "completed"), 0)
        first = min(max(0, now - room // 2), len(steps) - room)
        return steps[first : first + room]


def _plan_step(step: TurnPlanStep) -> tuple[Text, Text]:
    sign, style = _PLAN_SIGNS.get(str(step.status), _PLAN_SIGNS["pending"])
    return Text(f"  {sign} ", style), Text(printable_line(step.step), _PLAN_STYLES.get(str(step.status), ""))


class MessageStream:
    """A message of the agent while it is written: finished paragraphs are given out, the rest is what is being written.
    `whole`: nothing is given out before the end.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._given = ""
        self._next_look = 0  # how long the rest has to be before it is worth a look
        self.rest: str = ""
        """What is written and not finished."""

    @property
    def text(self) -> str:
        """The whole message so far."""
        return self._given + self.rest

    def add(self, delta: str) -> list[RenderableType]:
        """The paragraphs that are finished by it."""
        self.rest += delta
        if self._whole or "\n" not in delta or len(self.rest) < self._next_look or "\n\n" not in self.rest:
            return []
        blocks = self._give(finished_part(self.rest))
        # A long list or listing is one block. To look for its end at every line would take the longer the longer it is.
        self._next_look = 0 if blocks else len(self.rest) * 3 // 2
        return blocks

    def end(self, text: str) -> list[RenderableType]:
        """The message as it was in the end; what of it was not given out yet."""
        self.rest = text.removeprefix(self._given)
        return self._give(len(self.rest))

    def _give(self, count: int) -> list[RenderableType]:
        part, self.rest = self.rest[:count], self.rest[count:]
        self._given += part
        return [markdown(part), ""] if part.strip() else []
