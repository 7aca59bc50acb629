"""A turn on a terminal, without a terminal: events in, text out."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console, RenderableType

from treadle.cli import FAILED_TAIL, TurnRenderer, finished_part
from treadle.cli.turn import turn_renderer
from treadle.cli.turn.turn_renderer import HEAD, TAIL
from treadle.pages import item_blocks
from treadle.protocol.app import (
    AddPatchChangeKind,
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    CommandExecutionOutputDeltaNotification,
    CommandExecutionThreadItem,
    CommandGuardianApprovalReviewAction,
    DynamicToolCallThreadItem,
    EnvironmentConnectionNotification,
    ErrorNotification,
    FileChangeThreadItem,
    FileUpdateChange,
    GuardianApprovalReview,
    InputTextDynamicToolCallOutputContentItem,
    ItemCompletedNotification,
    ItemGuardianApprovalReviewCompletedNotification,
    ItemStartedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningThreadItem,
    ThreadTokenUsage,
    ThreadTokenUsageUpdatedNotification,
    TokenUsageBreakdown,
    Turn,
    TurnCompletedNotification,
    TurnError,
    TurnPlanStep,
    TurnPlanUpdatedNotification,
    TurnStartedNotification,
    UpdatePatchChangeKind,
    UsageCost,
    WarningNotification,
)

EVIL = "\x1b[2J\x1b]52;c;aGk=\x07"


class Stage:
    def __init__(self, width: int = 80, **options: Any) -> None:
        self.width = width
        self.now = 0.0
        self._file = StringIO()
        self._console = Console(file=self._file, width=width, highlight=False, markup=False, emoji=False)
        self.story = TurnRenderer(0.0, **options)

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        """What stays."""
        return self.text.splitlines()

    def live(self, height: int = 24) -> list[str]:
        return [line.plain for line in self.story.live(self.now, self.width - 1, height)]

    def tell(self, method: str, params: Any) -> None:
        for block in self.story.show(method, params, self.now):
            self.print(block)

    def print(self, block: RenderableType) -> None:
        self._console.print(block)

    def start(self, item: Any) -> None:
        self.tell("item/started", ItemStartedNotification(thread_id="t", turn_id="u", item=item))

    def complete(self, item: Any) -> None:
        self.tell("item/completed", ItemCompletedNotification(thread_id="t", turn_id="u", item=item))

    def output(self, item_id: str, delta: str) -> None:
        params = CommandExecutionOutputDeltaNotification(thread_id="t", turn_id="u", item_id=item_id, delta=delta)
        self.tell("item/commandExecution/outputDelta", params)

    def say(self, text: str) -> None:
        params = AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id="m", delta=text)
        self.tell("item/agentMessage/delta", params)

    def plan(self, **steps: str) -> None:
        given = tuple(TurnPlanStep(step=name, status=status) for name, status in steps.items())
        self.tell("turn/plan/updated", TurnPlanUpdatedNotification(thread_id="t", turn_id="u", plan=given))

    def end(self, status: str = "completed", error: TurnError | None = None) -> None:
        turn = Turn(id="u", items=(), status=status, error=error)
        self.tell("turn/completed", TurnCompletedNotification(thread_id="t", turn=turn))


def command(name: str, **fields: Any) -> CommandExecutionThreadItem:
    given: dict[str, Any] = {"status": "inProgress", **fields}
    return CommandExecutionThreadItem(id=name, command=f"run {name}", command_actions=(), cwd="/w", **given)


def ended(item: CommandExecutionThreadItem, **fields: Any) -> CommandExecutionThreadItem:
    return structs.replace(item, **{"status": "completed", "exit_code": 0, **fields})


def message(text: str) -> AgentMessageThreadItem:
    return AgentMessageThreadItem(id="m", text=text)


# --- what goes on ---


def test_time_passes_before_the_first_word() -> None:
    stage = Stage()
    stage.now = 7.0
    assert stage.live()[-1].endswith("waiting for the model · 7s · Ctrl-C to interrupt")
    stage.tell("turn/started", TurnStartedNotification(thread_id="t", turn=Turn(id="u", items=(), status="inProgress")))
    stage.now = 10.0
    assert "· 3s ·" in stage.live()[-1]


def test_commands_at_the_same_time_are_told_apart() -> None:
    stage = Stage()
    for name in "abc":
        stage.start(command(name))
        stage.output(name, f"first of {name}\nlast of {name}")
    stage.now = 2.0
    assert stage.live()[:-1] == [
        *("▸ run a · 2.0s", "  │ first of a", "  │ last of a"),
        *("▸ run b · 2.0s", "  │ first of b", "  │ last of b"),
        *("▸ run c · 2.0s", "  │ first of c", "  │ last of c"),
    ]
    stage.complete(ended(command("b"), duration_ms=1500))
    assert stage.lines == ["✓ run b · 1.5s", "  │ first of b", "  │ last of b", ""]
    assert not any("run b" in line for line in stage.live())


@pytest.mark.parametrize("height", [1, 2, 4, 8, 24])
def test_the_live_lines_fit_the_terminal(height: int) -> None:
    stage = Stage(40)
    stage.plan(**{f"step {number}": "pending" for number in range(20)})
    stage.say("words " * 500)
    for number in range(9):
        stage.start(command(str(number)))
        stage.output(str(number), "out\n" * 5)
    lines = stage.live(height)
    assert len(lines) <= max(height, 3)
    assert "Ctrl-C" in lines[-1]


def test_a_thought_is_seen_while_it_comes_and_stays_short() -> None:
    stage = Stage(40)
    thought = "**Looking around**\n\n" + "thinking about it " * 40
    for part in (thought[:30], thought[30:]):
        params = ReasoningSummaryTextDeltaNotification(
            thread_id="t", turn_id="u", item_id="r", delta=part, summary_index=0
        )
        stage.tell("item/reasoning/summaryTextDelta", params)
    assert stage.live()[0].strip() in thought
    assert "thinking" in stage.live()[-1]
    stage.complete(ReasoningThreadItem(id="r", summary=(thought,)))
    assert stage.lines[0] == "· Looking around thinking about it"
    assert stage.lines[-2].endswith("…")
    assert len(stage.lines) < 10
    assert len(stage.live()) == 1


def test_a_plan_is_shown_whole_once_and_then_by_what_is_done() -> None:
    stage = Stage()
    stage.plan(look="inProgress", write="pending")
    assert stage.lines == ["plan", "  ▶ look", "  □ write", ""]
    stage.plan(look="completed", write="inProgress")
    assert stage.lines[4:] == ["  ✔ look", ""]
    assert stage.live()[:2] == ["  ✔ look", "  ▶ write"]
    stage.plan(look="completed", think="inProgress")
    assert stage.lines[6:] == ["plan", "  ✔ look", "  ▶ think", ""]
    stage.plan(look="completed", think="completed")
    assert len(stage.live()) == 1


# --- what stays ---


def test_the_answer_is_rendered_paragraph_by_paragraph() -> None:
    stage = Stage()
    text = "# Title\n\nSome **bold** words\n\n- one\n- two\n\n```\ncode\n\nmore\n```\n\nThe end.\nReally."
    for char in text:
        stage.say(char)
    assert stage.lines == ["Title", "", "Some bold words", "", " • one", " • two", "", " code", "", " more", ""]
    assert stage.live()[0] == "The end. Really."
    stage.complete(message(text))
    assert stage.lines[-2:] == ["The end. Really.", ""]
    assert stage.text.count("Title") == 1


def test_what_is_being_written_is_rendered_too() -> None:
    stage = Stage()
    stage.say("It **works**:\n\n```\ncode")
    assert stage.live()[:-1] == [" code"]
    stage.say("\nx" * 5000)
    assert stage.live(10)[:-1] == ["x"] * 7


def test_a_long_listing_is_not_read_again_at_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(text: str) -> int:
        read.append(len(text))
        return finished_part(text)

    monkeypatch.setattr(turn_renderer, "finished_part", counted)
    stage = Stage()
    text = "```\n" + "line\n\n" * 5000 + "```\n\nDone."
    for place in range(0, len(text), 6):
        stage.say(text[place : place + 6])
    assert sum(read) < 5 * len(text)
    stage.complete(message(text))
    assert stage.lines[-2] == "Done."


def test_what_was_tried_is_seen_when_it_is_asked_for_again() -> None:
    stage = Stage(confinement="workspaceWrite")
    stage.start(command("a"))
    assert stage.story.said("a") == []
    stage.output("a", GIT)
    for block in stage.story.said("a"):
        stage.print(block)
    assert stage.lines[:2] == ["· it was tried, and has said:", f"  │ {GIT}"]
    assert stage.lines[-1] == "  try: --add-dir .git"


def test_an_answer_that_came_with_the_end_alone_is_shown() -> None:
    stage = Stage()
    stage.complete(message("all at once"))
    assert stage.lines == ["all at once", ""]


def test_json_is_no_markdown() -> None:
    stage = Stage()
    stage.complete(message('{"a_b": "*c*", "d": [1, 2]}'))
    assert stage.lines[0].strip() == '{"a_b": "*c*", "d": [1, 2]}'


def test_an_answer_that_is_not_what_was_streamed_is_shown_as_it_is() -> None:
    stage = Stage()
    stage.say("draft one\n\ndraft two\n\nx")
    stage.complete(message("final"))
    assert stage.lines[-2:] == ["final", ""]


def test_words_are_not_torn_at_40_columns() -> None:
    stage = Stage(40)
    words = "several words that are to be wrapped where they end and nowhere else"
    stage.complete(message(f"{words}\n\n- {words}"))
    stage.complete(ended(command("a"), aggregated_output=f"{words}\n" + "x" * 100))
    stage.tell("warning", WarningNotification(message=words))
    stage.plan(**{words: "pending"})
    assert max(map(len, stage.lines)) <= 40
    for line in stage.lines:
        torn = set(line.replace("│", "").split()) - {*words.split(), "•", "✓", "!", "□", "run", "a", "plan"}
        assert all(set(word) == {"x"} for word in torn), line
    assert stage.text.count("x") == 100


def test_the_middle_of_a_long_output_is_left_out() -> None:
    def shown(**fields: Any) -> list[str]:
        stage = Stage()
        stage.start(command("a"))
        stage.output("a", "".join(f"{number}\n" for number in range(1000)))
        stage.complete(ended(command("a"), **fields))
        return stage.lines

    good = shown()
    assert good[HEAD + 1] == f"  │ … {1000 - HEAD - TAIL} lines left out …"
    assert (good[1], good[-2]) == ("  │ 0", "  │ 999")
    assert shown(status="failed", exit_code=2)[HEAD + 1] == f"  │ … {1000 - HEAD - FAILED_TAIL} lines left out …"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "✓ run a"),
        ({"duration_ms": 300}, "✓ run a · 0.3s"),
        ({"status": "failed", "exit_code": 3}, "✗ run a · exit 3"),
        ({"status": "failed", "exit_code": None}, "✗ run a · failed"),
        ({"status": "declined", "exit_code": None}, "✗ run a · declined, and not run"),
        ({"status": "inProgress", "exit_code": None}, "– run a · had not ended when the turn did"),
    ],
)
def test_how_a_command_ended(fields: dict[str, Any], said: str) -> None:
    stage = Stage()
    stage.complete(ended(command("a"), **fields))
    assert stage.lines[0] == said


def test_who_said_no_is_told() -> None:
    stage = Stage()
    stage.start(command("a"))
    stage.story.decided("a", "you said no")
    stage.complete(ended(command("a"), status="declined", exit_code=None))
    assert stage.lines[0] == "✗ run a · declined, and not run: you said no"


def test_what_a_reviewer_said_is_told() -> None:
    stage = Stage()
    stage.start(command("a"))
    review = ItemGuardianApprovalReviewCompletedNotification(
        thread_id="t",
        turn_id="u",
        action=CommandGuardianApprovalReviewAction(command="run a", cwd="/w", source="unifiedExec"),
        completed_at_ms=0,
        decision_source="agent",
        review=GuardianApprovalReview(status="denied", rationale="it deletes"),
        review_id="r",
        started_at_ms=0,
        target_item_id="a",
    )
    stage.tell("item/autoApprovalReview/completed", review)
    stage.complete(ended(command("a"), status="declined", exit_code=None))
    assert stage.lines[0].endswith("declined, and not run: the automatic reviewer said no: it deletes")


GIT = "fatal: Unable to create '/w/.git/index.lock': Read-only file system"


@pytest.mark.parametrize(
    ("options", "output", "do"),
    [
        ({"confinement": "workspaceWrite"}, GIT, "--add-dir .git"),
        ({"confinement": "workspaceWrite"}, GIT.replace("/w/", "/m n/"), "--add-dir '/m n/.git'"),
        ({"confinement": "workspaceWrite"}, "touch: '.git/hooks/x': Read-only file system", "--add-dir .git"),
        ({"confinement": "readOnly"}, GIT, "--sandbox workspace-write"),
        ({"confinement": "workspaceWrite"}, "touch: /etc/x: Read-only file system", "--add-dir DIR"),
        ({"confinement": "readOnly"}, "touch: cannot touch 'x': Permission denied", "--sandbox workspace-write"),
        (
            {"confinement": "workspaceWrite"},
            "curl: (6) Could not resolve host: example.com",
            "-c sandbox_workspace_write.network_access=true",
        ),
        ({"confinement": "workspaceWrite", "network": True}, "curl: (6) Could not resolve host: example.com", None),
        ({"confinement": "workspaceWrite"}, "bash: ./x.sh: Permission denied", None),
        ({"confinement": "dangerFullAccess"}, GIT, None),
        ({}, GIT, None),
    ],
)
def test_what_the_sandbox_stopped_is_explained(options: dict[str, Any], output: str, do: str | None) -> None:
    stage = Stage(**options)
    stage.complete(ended(command("a"), status="failed", exit_code=128, aggregated_output=output))
    said = [line.removeprefix("  try: ") for line in stage.lines if line.startswith("  try: ")]
    assert said == ([] if do is None else [do])


def patch(status: str = "inProgress", lines: int = 2) -> FileChangeThreadItem:
    diff = "@@ -1 +1 @@\n" + "".join(f"+line {number}\n" for number in range(lines))
    return FileChangeThreadItem(
        id="f", changes=(FileUpdateChange(path="/w/f.py", kind=UpdatePatchChangeKind(), diff=diff),), status=status
    )


def test_a_patch_is_shown_with_its_diff_unless_it_was_looked_at() -> None:
    stage = Stage()
    stage.start(patch())
    stage.complete(patch("completed"))
    assert stage.lines == ["✓ changed /w/f.py +2", "    @@ -1 +1 @@", "    +line 0", "    +line 1", ""]
    asked = Stage()
    asked.start(patch())
    assert asked.story.changes("f") == tuple(item_blocks(patch()))
    asked.complete(patch("completed"))
    assert asked.lines == ["✓ changed /w/f.py +2", ""]


def test_a_patch_that_was_refused_says_what_allows_it() -> None:
    stage = Stage(confinement="readOnly")
    stage.complete(patch("failed"))
    assert stage.lines[0] == "✗ update /w/f.py +2 · failed"
    assert "  try: --sandbox workspace-write" in stage.lines


def test_a_tool_that_failed_says_why() -> None:
    stage = Stage()
    stage.complete(
        DynamicToolCallThreadItem(
            id="d",
            arguments={},
            status="failed",
            tool="weather",
            content_items=(InputTextDynamicToolCallOutputContentItem(text="no such town"),),
        )
    )
    assert stage.lines == ["✗ weather · failed: no such town"]


def test_a_stream_that_was_cut_begins_again() -> None:
    stage = Stage()
    stage.say("half an ans")
    error = TurnError(message="stream cut", additional_details="1/5")
    stage.tell("error", ErrorNotification(error=error, thread_id="t", turn_id="u", will_retry=True))
    assert stage.lines == ["· stream cut (1/5); the answer begins again"]
    stage.complete(message("half an answer"))
    assert stage.lines[1:] == ["half an answer", ""]


def test_the_answer_may_be_for_somebody_else() -> None:
    stage = Stage(holds_answer=True)
    stage.say("first\n\nI look\n\n")
    stage.complete(message("first\n\nI look"))
    assert stage.lines == []
    stage.start(command("a"))
    assert stage.lines == ["first", "", "I look", ""]
    stage.complete(message("the answer"))
    stage.end()
    assert "the answer" not in stage.text


def test_of_a_turn_that_was_cut_off_all_is_told() -> None:
    stage = Stage()
    stage.start(command("a"))
    stage.output("a", "so far")
    stage.say("I was about t")
    stage.end("interrupted")
    assert stage.lines == [
        *("I was about t", "", "– run a · had not ended when the turn did", "  │ so far", "✗ interrupted"),
    ]
    failed = Stage(holds_answer=True)
    failed.complete(message("nearly there"))
    failed.end("failed", TurnError(message="it broke"))
    assert failed.lines == ["nearly there", "", "✗ failed: it broke"]


def test_what_others_wrote_does_not_act_on_the_terminal() -> None:
    stage = Stage()
    item = command(EVIL)
    stage.start(item)
    stage.output(EVIL, f"{EVIL}\n")
    stage.say(EVIL)
    assert not any("\x1b" in line or "\x07" in line for line in stage.live())
    stage.complete(ended(item))
    stage.complete(message(f"{EVIL} [a](http://x/{EVIL}) &#27;[2J &#8238;"))
    stage.tell("warning", WarningNotification(message=EVIL))
    stage.plan(**{EVIL: "pending"})
    change = FileUpdateChange(path=EVIL, kind=AddPatchChangeKind(), diff=EVIL)
    stage.complete(FileChangeThreadItem(id="f", changes=(change,), status="failed"))
    stage.end("failed", TurnError(message=EVIL))
    assert stage.text.count("\\x1b[2J") == 8
    assert not {"\x1b", "\x07", "\u202e"} & set(stage.text)


# --- what was used ---


def counted(total: int, last: int) -> ThreadTokenUsage:
    def breakdown(tokens: int) -> TokenUsageBreakdown:
        return TokenUsageBreakdown(
            cached_input_tokens=0,
            input_tokens=tokens,
            output_tokens=tokens // 10,
            reasoning_output_tokens=0,
            total_tokens=tokens,
        )

    return ThreadTokenUsage(
        last=breakdown(last), total=breakdown(total), cost=UsageCost(turn_usd=0.0123, thread_usd=0.5)
    )


def test_tokens_are_those_of_the_turn() -> None:
    stage = Stage()

    def tell(usage: ThreadTokenUsage) -> None:
        params = ThreadTokenUsageUpdatedNotification(thread_id="t", turn_id="u", token_usage=usage)
        stage.tell("thread/tokenUsage/updated", params)

    assert stage.story.used(None) == "0.0 s"
    tell(counted(total=5000, last=1000))  # as a thread that is resumed is described
    stage.tell("turn/started", TurnStartedNotification(thread_id="t", turn=Turn(id="u", items=(), status="inProgress")))
    tell(counted(total=6000, last=1000))
    tell(counted(total=7500, last=1500))
    assert stage.story.used(1500) == "2,500 tokens in, 250 out · $0.0123 ($0.5000 with the turns before) · 1.5 s"


def test_a_machine_that_is_lost_and_comes_back_is_said() -> None:
    stage = Stage()
    said = EnvironmentConnectionNotification(thread_id="t", environment_id="box")
    stage.tell("thread/environment/disconnected", said)
    stage.tell("thread/environment/connected", said)
    lost, back = stage.text.index("the connection to the environment box was lost"), stage.text.index("box again")
    assert lost < back
