"""`TurnStory`: a turn as it is seen on a terminal. Notifications in; blocks that stay, and the lines of now, out.

It owns what is on the screen, not the screen: it reads no clock and writes nothing. One story may tell several turns of
a thread, one after the other.
"""

from __future__ import annotations

from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.live_area import spinner
from treadle.cli.run.run_text import FAILED, RUNNING, WARNING
from treadle.cli.turn.ended_items import ended_item
from treadle.cli.turn.hints import hint_for, patch_hint
from treadle.cli.turn.message_stream import MessageStream
from treadle.cli.turn.plan import PlanStory
from treadle.cli.turn.running_command import RunningCommand
from treadle.cli.turn.turn_blocks import (
    SIGN_STYLES,
    beneath,
    change_blocks,
    hint_blocks,
    markdown,
    note,
    rendered,
    signed,
)
from treadle.cli.turn.turn_usage import TurnUsage
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    ReasoningThreadItem,
)
from treadle.protocol.app.reviews import GuardianApprovalReview
from treadle.runners.progress import elapsed

# Of what is being thought and written now: so many rows at most, and on a small terminal fewer.
_THOUGHT_ROWS: Final = 4
_PLAN_ROWS: Final = 8
# Of what is being written, so much is rendered ten times a second; what is longer, such as a whole file, is shown raw.
_RENDERED: Final = 4000
_KEEP_THOUGHT: Final = 4000


class TurnStory:
    """What goes on in a turn.

    Args:
        now: The time, in seconds from anywhere. The turn is said to last since then, until `turn/started` comes.
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
        self._tools: dict[str, str] = {}  # calls that go on, by what is called
        self._changes: dict[str, FileChangeThreadItem] = {}
        self._looked_at: set[str] = set()  # patches that somebody was asked about
        self._reasons: dict[str, str] = {}
        self._message = MessageStream(whole=holds_answer)
        self._thought = ""
        self._plan = PlanStory()
        self._doing = "waiting for the model"
        self._usage = TurnUsage()
        self.note: str = ""
        """A line below all others, as long as it is there."""

    # --- what happens ---

    def show(self, method: str, params: Any, now: float) -> list[RenderableType]:
        """What happened; the blocks that stay."""
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
                return self._let_go()
            case "item/completed":
                self._doing = "waiting for the model"
                return self._item_completed(params.item, now)
            case "turn/plan/updated":
                return self._plan.update(params.plan)
            case "thread/tokenUsage/updated":
                self._usage.update(params.token_usage)
            case "error" if params.will_retry:
                return self._cut(f"{params.error.message} ({params.error.additional_details})")
            case "warning":
                return [signed(WARNING, Text(visible(params.message), "yellow"))]
            case "item/autoApprovalReview/completed" if params.review.status == "denied" and params.target_item_id:
                self.decided(params.target_item_id, _reviewed(params.review))
            case "turn/completed":
                return self._turn_completed(params.turn)
        return []

    def _hold(self, blocks: list[RenderableType]) -> list[RenderableType]:
        """What the agent says may be the answer, until something else follows."""
        if not self._holds_answer:
            return blocks
        self._held += blocks
        return []

    def _let_go(self) -> list[RenderableType]:
        held, self._held = self._held, []
        return held

    def decided(self, item_id: str, why: str) -> None:
        """Somebody has said no to what this item wants to do: it is told with the item when that ends."""
        self._reasons[item_id] = why

    def changes(self, item_id: str) -> FileChangeThreadItem | None:
        """The patch that is asked about: requests for approval name it only by its id. It is looked at then, so that it
        is not shown whole again when it is done."""
        found = self._changes.get(item_id)
        if found is not None:
            self._looked_at.add(item_id)
        return found

    def said(self, item_id: str) -> list[RenderableType]:
        """What a command that is asked about has written, where it was tried already."""
        command = self._commands.get(item_id)
        lines = [] if command is None else command.said()
        if command is None or not lines:
            return []
        hint = hint_for("\n".join(lines), command.item.cwd, self._confinement, network=self._network)
        return [note("it was tried, and has said:"), *beneath(lines), *hint_blocks(hint)]

    def used(self, duration_ms: int | None) -> str:
        """What the turn has used: `1,200 tokens in, 34 out · $0.0123 · 1.5 s`."""
        return self._usage.words(duration_ms)

    def _item_started(self, item: Any, now: float) -> None:
        match item:
            case CommandExecutionThreadItem():
                self._commands[item.id] = RunningCommand(item, now)
            case FileChangeThreadItem():
                self._changes[item.id] = item
            case McpToolCallThreadItem():
                self._tools[item.id] = f"{item.server}.{item.tool}"
            case DynamicToolCallThreadItem():
                self._tools[item.id] = item.tool
            case ContextCompactionThreadItem():
                self._doing = "making room in the conversation"

    def _item_completed(self, item: Any, now: float) -> list[RenderableType]:
        self._tools.pop(getattr(item, "id", ""), None)
        match item:
            case AgentMessageThreadItem():
                message, self._message = self._message, MessageStream(whole=self._holds_answer)
                return self._hold(message.end(item.text))
            case CommandExecutionThreadItem():
                return self._command_ended(item, now)
            case FileChangeThreadItem():
                self._changes.pop(item.id, None)
                why = self._reasons.pop(item.id, None)
                reason = [note(why)] if why and item.status != "completed" else []
                hint = patch_hint(self._confinement) if item.status == "failed" else None
                shown = change_blocks(item.changes, str(item.status), titles=item.id in self._looked_at)
                return [*shown, *reason, *hint_blocks(hint), ""]
        if isinstance(item, ReasoningThreadItem):
            self._thought = ""
        return ended_item(item)

    def _command_ended(self, item: CommandExecutionThreadItem, now: float) -> list[RenderableType]:
        command = self._commands.pop(item.id, None) or RunningCommand(item, now)
        why = self._reasons.pop(item.id, None)
        failed = item.exit_code not in (0, None)
        output = item.aggregated_output or ""
        hint = hint_for(output, item.cwd, self._confinement, network=self._network) if failed else None
        return [*command.ended(item, why, hint), ""]

    def _cut(self, reason: str) -> list[RenderableType]:
        """The model's stream was cut. What it had said so far, it says again."""
        again = bool(self._message.rest)
        self._message, self._thought = MessageStream(whole=self._holds_answer), ""
        return [*self._let_go(), note(reason + ("; the answer begins again" if again else ""), "yellow")]

    def _turn_completed(self, turn: Any) -> list[RenderableType]:
        """Nothing goes on any more. Commands that do are told as such; of an answer that was cut off, all there is."""
        rest = self._hold(self._message.end(self._message.text))
        if turn.status != "completed":
            rest += self._let_go()
        unfinished = [block for command in self._commands.values() for block in command.ended(command.item, None, None)]
        self._commands.clear()
        self._tools.clear()
        self._changes.clear()
        self._message, self._thought = MessageStream(whole=self._holds_answer), ""
        return [*rest, *unfinished, *_verdict(turn)]

    # --- what goes on ---

    def live(self, now: float, width: int, height: int) -> list[Text]:
        """The lines of now, for a terminal of this size; the last one says what goes on, and for how long."""
        room = max(0, height - 3)
        running = self._running(now, width, room)
        room -= len(running)
        plan = self._plan.live(min(_PLAN_ROWS, room))
        room -= len(plan)
        said = self._said(width, room) if room > 0 else []
        doing = "working" if running else self._doing
        facts = f"{doing} · {elapsed(now - self._since)}"
        status = Text.assemble((f"{spinner(now)} ", "cyan"), (f"{facts} · {self._key}", "dim"))
        return [*said, *running, *plan, status, *([Text(self.note, "yellow")] if self.note else [])]

    def _running(self, now: float, width: int, room: int) -> list[Text]:
        commands = list(self._commands.values())
        each = max(1, room // len(commands)) if commands else 0
        shown = commands[: max(1, room - 1)] if len(commands) > room else commands
        lines = [line for command in shown for line in command.live(now, width, each)]
        if hidden := len(commands) - len(shown):
            lines.append(Text(f"… {hidden} more", "dim"))
        tools = [
            Text.assemble((f"{RUNNING} ", SIGN_STYLES[RUNNING]), visible_line(name)) for name in self._tools.values()
        ]
        return lines + tools[: max(0, room - len(lines))]

    def _said(self, width: int, room: int) -> list[Text]:
        """The end of what is being thought, or written."""
        if rest := self._message.rest.strip():
            return rendered(markdown(rest), width)[-room:] if len(rest) <= _RENDERED else _rows(rest, width, room, "")
        return _rows(self._thought.replace("**", ""), width, min(room, _THOUGHT_ROWS), "dim italic")


def _reviewed(review: GuardianApprovalReview) -> str:
    return "the automatic reviewer said no" + (f": {review.rationale}" if review.rationale else "")


def _verdict(turn: Any) -> list[RenderableType]:
    match turn.status:
        case "failed":
            said = "it failed" if turn.error is None else visible(turn.error.message)
            return [signed(FAILED, Text(f"failed: {said}", "red"))]
        case "interrupted":
            return [signed(FAILED, Text("interrupted", "red"))]
    return []


def _rows(text: str, width: int, room: int, style: str) -> list[Text]:
    """Its last rows, wrapped by words."""
    if not text.strip():
        return []
    end = visible(text[-(room + 1) * width * 2 :]).expandtabs(4)
    return rendered(Text(end.strip("\n"), style, overflow="fold"), width)[-room:]
