"""What is shown of a turn: events in, text out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from treadle.cli import PlainTurn, TurnHeader
from treadle.cli.turn.output_view import MAX_LINE
from treadle.cli.turn.plain_turn import DIFF_HEAD, DIFF_TAIL, HEAD, TAIL
from treadle.config import ModelChoice
from treadle.protocol.app import (
    AddPatchChangeKind,
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    CommandExecutionOutputDeltaNotification,
    CommandExecutionThreadItem,
    EnvironmentConnectionNotification,
    ErrorNotification,
    FileChangeThreadItem,
    FileUpdateChange,
    ItemCompletedNotification,
    ItemStartedNotification,
    ThreadTokenUsage,
    ThreadTokenUsageUpdatedNotification,
    TokenUsageBreakdown,
    Turn,
    TurnError,
    UsageCost,
    WarningNotification,
)


class Stage:
    def __init__(self, **options: Any) -> None:
        self.text = ""
        self.view = PlainTurn(self._write, color=False, **options)

    def _write(self, text: str) -> None:
        self.text += text

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def start(self, item: Any) -> None:
        params = ItemStartedNotification(thread_id="t", turn_id="u", item=item, started_at_ms=0)
        self.view.show("item/started", params)

    def complete(self, item: Any) -> None:
        params = ItemCompletedNotification(thread_id="t", turn_id="u", item=item, completed_at_ms=0)
        self.view.show("item/completed", params)

    def output(self, item_id: str, *deltas: str) -> None:
        for delta in deltas:
            params = CommandExecutionOutputDeltaNotification(thread_id="t", turn_id="u", item_id=item_id, delta=delta)
            self.view.show("item/commandExecution/outputDelta", params)

    def say(self, text: str, item_id: str = "m") -> None:
        params = AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id=item_id, delta=text)
        self.view.show("item/agentMessage/delta", params)


def command(name: str, **fields: Any) -> CommandExecutionThreadItem:
    given: dict[str, Any] = {"status": "inProgress", **fields}
    return CommandExecutionThreadItem(id=name, command=f"run {name}", command_actions=(), cwd="/", **given)


def ended(item: CommandExecutionThreadItem, **fields: Any) -> CommandExecutionThreadItem:
    return structs.replace(item, **{"status": "completed", "exit_code": 0, **fields})


def run(stage: Stage, *deltas: str, **fields: Any) -> list[str]:
    item = command("a")
    stage.start(item)
    stage.output("a", *deltas)
    stage.complete(ended(item, **fields))
    return stage.lines


def test_pieces_are_joined_into_lines() -> None:
    assert run(Stage(), "he", "llo\nwor", "ld\r", "\nend") == [
        "$ run a",
        "  | hello",
        "  | world",
        "  | end",
        "  exit 0",
        "",
    ]


def test_long_output_shows_its_head_and_its_tail() -> None:
    shown = run(Stage(), "".join(f"{number}\n" for number in range(1000)))
    assert shown[1 : HEAD + 1] == [f"  | {number}" for number in range(HEAD)]
    assert shown[HEAD + 1] == f"  | … {1000 - HEAD - TAIL} lines left out …"
    assert shown[HEAD + 2 : -2] == [f"  | {number}" for number in range(1000 - TAIL, 1000)]


@pytest.mark.parametrize("count", [HEAD, HEAD + 1, HEAD + TAIL])
def test_output_that_fits_is_shown_whole(count: int) -> None:
    shown = run(Stage(), "".join(f"{number}\n" for number in range(count)))
    assert shown[1:-2] == [f"  | {number}" for number in range(count)]


def test_a_line_without_end_is_cut_into_pieces() -> None:
    shown = run(Stage(), *["x" * 1000] * 5)
    assert [len(line) - 4 for line in shown[1:-2]] == [MAX_LINE, MAX_LINE, 1000]


def test_output_that_came_with_the_end_alone_is_shown() -> None:
    assert run(Stage(), aggregated_output="late\n")[1] == "  | late"


def test_commands_at_the_same_time_are_told_apart() -> None:
    stage = Stage()
    first, second = command("a"), command("b")
    stage.start(first)
    stage.output("a", "one\n")
    stage.start(second)
    stage.output("a", "two\n")
    stage.output("b", "three\n")
    stage.complete(ended(first))
    stage.complete(ended(second, exit_code=1, status="failed"))
    assert stage.lines == [
        *(
            "$ run a",
            "  | one",
            "  [1] is: run a",
            "[2] $ run b",
            "  1| two",
            "  2| three",
            "  [1] exit 0",
            "  [2] exit 1",
        ),
        "",
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "declined", "exit_code": None}, "  declined, and not run"),
        ({"status": "failed", "exit_code": None}, "  failed"),
        ({"status": "inProgress", "exit_code": None}, "  it had not ended when the turn did"),
        ({"duration_ms": 1500}, "  exit 0 · 1.5 s"),
    ],
)
def test_how_a_command_ended(fields: dict[str, Any], said: str) -> None:
    assert said in run(Stage(), **fields)


def test_a_command_that_was_never_begun_is_named() -> None:
    stage = Stage()
    stage.complete(command("a", status="declined"))
    assert stage.lines[0] == "$ run a"


def test_what_others_wrote_does_not_act_on_the_terminal() -> None:
    stage = Stage()
    evil = "\x1b[2J\x1b]52;c;aGk=\x07"
    item = command(evil)
    stage.start(item)
    stage.output(evil, f"{evil}\n")
    stage.complete(ended(item))
    stage.say(evil)
    stage.view.show("warning", WarningNotification(message=evil))
    change = FileUpdateChange(path=evil, kind=AddPatchChangeKind(), diff=evil)
    stage.complete(FileChangeThreadItem(id="f", changes=(change,), status="failed"))
    assert stage.text.count("\\x1b[2J") == 6
    assert "\x1b" not in stage.text
    assert "\x07" not in stage.text


def test_a_long_diff_shows_its_head_and_its_tail() -> None:
    stage = Stage()
    change = FileUpdateChange(path="f", kind=AddPatchChangeKind(), diff="".join(f"{n}\n" for n in range(500)))
    stage.complete(FileChangeThreadItem(id="f", changes=(change,), status="completed"))
    assert stage.lines[0] == "added f"
    assert stage.lines[DIFF_HEAD + 1] == f"  … {500 - DIFF_HEAD - DIFF_TAIL} lines left out …"
    assert stage.lines[-2] == "  +499"


def test_an_answer_that_begins_again_is_said_to() -> None:
    stage = Stage()
    stage.say("half an ans")
    error = TurnError(message="stream cut", additional_details="1/5")
    stage.view.show("error", ErrorNotification(error=error, thread_id="t", turn_id="u", will_retry=True))
    stage.say("half an answer")
    assert stage.lines == ["half an ans", "stream cut (1/5); the answer begins again", "half an answer"]


def test_a_comment_before_a_stream_that_was_cut_is_kept() -> None:
    stage = Stage(holds_answer=True)
    stage.complete(message("first I look"))
    stage.say("half an ans")
    error = TurnError(message="stream cut", additional_details="1/5")
    stage.view.show("error", ErrorNotification(error=error, thread_id="t", turn_id="u", will_retry=True))
    stage.complete(message("the answer"))
    assert stage.lines == ["first I look", "", "stream cut (1/5); the answer begins again"]


def test_what_the_sandbox_stopped_is_explained() -> None:
    stage = Stage()
    stage.view.started(started())
    stage.complete(command("a", status="failed", exit_code=1, aggregated_output="touch: x: Read-only file system\n"))
    assert stage.lines[-3:] == ["  why: the sandbox is read-only", "  try: --sandbox workspace-write", ""]


def test_who_cannot_be_asked_is_told_what_to_type() -> None:
    stage = Stage()
    stage.view.started(started())
    assert stage.lines[3].startswith("approval never: nobody can be asked here; --sandbox allows more")


@pytest.mark.parametrize(("kept_in", "said"), [("~/.treadle/threads.db", True), (None, False)])
def test_the_end_says_how_to_go_on(kept_in: str | None, said: bool) -> None:
    stage = Stage(header=TurnHeader(stored_in=kept_in))
    stage.view.started(started())
    stage.view.ended(Turn(id="u", items=(), status="completed"))
    assert ('go on    treadle exec resume t "…"' in stage.lines) is said
    assert ("stored   ~/.treadle/threads.db" in stage.lines) is said


def message(text: str) -> AgentMessageThreadItem:
    return AgentMessageThreadItem(id="m", text=text)


def test_the_answer_may_be_for_somebody_else() -> None:
    stage = Stage(holds_answer=True)
    stage.say("first I look")
    stage.complete(message("first I look"))
    stage.start(command("a"))
    stage.complete(message("the answer"))
    assert stage.lines == ["first I look", "", "$ run a"]


def test_what_was_said_before_a_failure_is_shown() -> None:
    stage = Stage(holds_answer=True)
    stage.complete(message("nearly there"))
    stage.view.ended(Turn(id="u", items=(), status="failed", error=TurnError(message="it broke")))
    assert stage.lines[:3] == ["nearly there", "", "failed: it broke"]


def test_what_a_turn_cost_is_shown_with_its_tokens() -> None:
    def end(*costs: float | None) -> str:
        stage = Stage()
        turn_usd, thread_usd = costs
        counted = TokenUsageBreakdown(
            cached_input_tokens=0, input_tokens=7, output_tokens=3, reasoning_output_tokens=0, total_tokens=10
        )
        cost = UsageCost(turn_usd=turn_usd, thread_usd=thread_usd)
        usage = ThreadTokenUsage(last=counted, total=counted, cost=cost)
        params = ThreadTokenUsageUpdatedNotification(thread_id="t", turn_id="u", token_usage=usage)
        stage.view.show("thread/tokenUsage/updated", params)
        stage.view.ended(Turn(id="u", items=(), status="completed", duration_ms=1500))
        return stage.lines[-1]

    assert end(None, None) == "7 tokens in, 3 out · 1.5 s"
    assert end(0.0, 0.0) == "7 tokens in, 3 out · 1.5 s"
    assert end(0.0123, 0.0123) == "7 tokens in, 3 out · $0.0123 · 1.5 s"
    assert end(0.01, 0.5) == "7 tokens in, 3 out · $0.0100 ($0.5000 with the turns before) · 1.5 s"
    assert end(0.01, None) == "7 tokens in, 3 out · $0.0100 · 1.5 s"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ModelChoice("m", "openai", "OPENAI_API_KEY is set"), "m (openai, because OPENAI_API_KEY is set)"),
        (ModelChoice("m", "anthropic", "ANTHROPIC_API_KEY is set"), "m (openai)"),  # the thread had another before
        (None, "m (openai)"),
    ],
)
def test_the_first_line_says_which_model_is_asked_and_why(choice: ModelChoice | None, said: str) -> None:
    stage = Stage(header=TurnHeader(choice))
    stage.view.started(started())
    assert stage.lines[0] == f"model    {said}"


def started(profile: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        model="m",
        model_provider="openai",
        cwd="/w",
        approval_policy="never",
        sandbox=SimpleNamespace(type="readOnly"),
        active_permission_profile=None if profile is None else SimpleNamespace(id=profile),
        thread=SimpleNamespace(id="t", environments=None),
    )


@pytest.mark.parametrize(
    ("profile", "said"),
    [(None, "read only"), (":read-only", "read only"), ("mine", "mine (permission profile)")],
)
def test_a_permission_profile_of_the_user_is_told_by_its_name(profile: str | None, said: str) -> None:
    stage = Stage()
    stage.view.started(started(profile))
    assert stage.lines[2] == f"sandbox  {said}"


def test_a_machine_that_is_lost_and_comes_back_is_said() -> None:
    stage = Stage()
    said = EnvironmentConnectionNotification(thread_id="t", environment_id="box")
    stage.view.show("thread/environment/disconnected", said)
    stage.view.show("thread/environment/connected", said)
    lost, back = stage.text.index("the connection to the environment box was lost"), stage.text.index("box again")
    assert lost < back
