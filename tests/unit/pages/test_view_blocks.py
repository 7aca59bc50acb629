"""Every type of item is shown on every page; and the page that is text."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from thread_samples import (
    ATTACK,
    changes,
    command,
    hostile_thread,
    rich_thread,
    said,
    thread,
    turn,
    updated,
    user,
    written,
)
from treadle.cli import Colors, MarkdownPage, TextPage, markdown_for
from treadle.pages import HtmlPage, JsonPage, Page, item_blocks
from treadle.protocol.app import (
    AgentMessageThreadItem,
    CollabAgentState,
    CollabAgentToolCallThreadItem,
    ContextCompactionThreadItem,
    DynamicToolCallThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    FunctionCallOutputThreadItem,
    HookPromptFragment,
    HookPromptThreadItem,
    ImageGenerationThreadItem,
    ImageUserInput,
    ImageViewThreadItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
    InputTextFunctionCallOutputContentItem,
    KnownItem,
    McpToolCallResult,
    McpToolCallThreadItem,
    MentionUserInput,
    PlanThreadItem,
    ReasoningThreadItem,
    SleepThreadItem,
    SubAgentActivityThreadItem,
    TextUserInput,
    ThreadItem,
    UnknownItem,
    UserMessageThreadItem,
    WebSearchThreadItem,
)

# Each with words that have to be seen.
ITEMS: list[tuple[ThreadItem, str]] = [
    (
        UserMessageThreadItem(
            id="1",
            content=(
                TextUserInput(text="spin the wheel"),
                MentionUserInput(name="wheel.py", path="/w/wheel.py"),
                ImageUserInput(url="https://example.org/wheel.png"),
            ),
        ),
        "wheel.py",
    ),
    (
        HookPromptThreadItem(id="1", fragments=(HookPromptFragment(hook_run_id="h", text="mind the gap"),)),
        "mind the gap",
    ),
    (said("spun"), "spun"),
    (FunctionCallOutputThreadItem(id="1", name="count_threads", output="forty two"), "count_threads"),
    (
        FunctionCallOutputThreadItem(
            id="1", name="count", output=(InputTextFunctionCallOutputContentItem(text="forty two"),)
        ),
        "forty two",
    ),
    (PlanThreadItem(id="1", text="wind first"), "wind first"),
    (ReasoningThreadItem(id="1", content=("raw thought",)), "raw thought"),
    (command("spin --fast", "whirr"), "spin --fast"),
    (changes(updated("/w/wheel.py", "@@ -1 +1 @@\n-slow\n+fast")), "wheel.py"),
    (
        McpToolCallThreadItem(
            id="1",
            server="mill",
            tool="grind",
            arguments={},
            status="completed",
            result=McpToolCallResult(content=({"type": "text", "text": "ground flax"},)),
        ),
        "ground flax",
    ),
    (
        DynamicToolCallThreadItem(
            id="1",
            namespace="mill",
            tool="weave",
            arguments={"cloth": "linen"},
            status="failed",
            content_items=(
                InputTextDynamicToolCallOutputContentItem(text="no thread left"),
                InputImageDynamicToolCallOutputContentItem(image_url="data:image/png;base64,AAAA"),
            ),
        ),
        "no thread left",
    ),
    (
        CollabAgentToolCallThreadItem(
            id="1",
            agents_states={},
            receiver_thread_ids=(),
            sender_thread_id="t",
            status="completed",
            tool="spawnAgent",
            prompt="card the wool",
        ),
        "spawn agent",
    ),
    (
        CollabAgentToolCallThreadItem(
            id="1",
            agents_states={"c": CollabAgentState(status="completed", message="the wool is carded")},
            receiver_thread_ids=("c",),
            sender_thread_id="t",
            status="completed",
            tool="wait",
        ),
        "completed: the wool is carded",
    ),
    (SubAgentActivityThreadItem(id="1", agent_path="carder", agent_thread_id="t", kind="started"), "carder"),
    (WebSearchThreadItem(id="1", query="spinning wheels"), "spinning wheels"),
    (ImageViewThreadItem(id="1", path="/w/wheel.png"), "wheel.png"),
    (SleepThreadItem(id="1", duration_ms=2000), "2.0 s"),
    (ImageGenerationThreadItem(id="1", status="completed", revised_prompt="a red wheel", result="AAAA"), "a red wheel"),
    (EnteredReviewModeThreadItem(id="1", review="current changes"), "current changes"),
    (ExitedReviewModeThreadItem(id="1", review="nothing to complain about"), "nothing to complain about"),
    (ContextCompactionThreadItem(id="1"), "summarised"),
    (UnknownItem({"type": "hologram", "id": "1"}), "hologram"),
]
PAGES: dict[str, Callable[[], Page]] = {
    "html": HtmlPage,
    "md": MarkdownPage,
    "text": lambda: TextPage(Colors(False)),
    "terminal": lambda: TextPage(Colors(True), markdown_for(60, colors=True)),
}


def test_the_table_has_every_type() -> None:
    assert {type(item) for item, _ in ITEMS} == {*get_args(KnownItem), UnknownItem}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("item", "words"), [pytest.param(*case, id=str(case[0].type)) for case in ITEMS])
def test_it_is_shown(item: ThreadItem, words: str, page: str) -> None:
    assert words in written(PAGES[page](), thread(turn(1, item))).replace("\\", "")


def test_what_says_nothing_is_left_out() -> None:
    empty: list[ThreadItem] = [
        AgentMessageThreadItem(id="1", text=" \n"),
        ReasoningThreadItem(id="1"),
        PlanThreadItem(id="1", text=""),
    ]
    assert [list(item_blocks(item)) for item in empty] == [[], [], []]


# --- text ------------------------------------------------------------------------------------------------------------


def test_a_thread_in_lines() -> None:
    page = written(TextPage(Colors(False)), rich_thread())
    for part in (
        "Flaky retry test\nthread        0199a6b2-",
        "\n── turn 1 · 11:30 · 41 s · 9k in, 1.9k out · $0.0123 ──\n",
        "\n› the retry test fails now and then in CI.\n  Find out why, and fix it:\n",
        "\nplan\n  [x] Reproduce the failure\n  [>] Make the clock a parameter\n  [ ] Run",
        "\n$ rg -n monotonic src\n  | src/retry.py:44:        left = self.",
        " time.monotonic()\n  exit 0 · 40 ms\n",
        "\nchanged src/retry.py  +4 −3\n  @@ -38,9",
        "\nfailed: the model could not be reached",
    ):
        assert part in page, part


@pytest.mark.parametrize("colors", [False, True])
def test_a_hostile_thread_does_nothing_to_a_terminal(colors: bool) -> None:
    page = written(TextPage(Colors(colors), markdown_for(80, colors=colors)), hostile_thread())
    assert "\u202e" not in page
    assert "\x07" not in page
    assert "\x1b]" not in page
    assert "\x1b[2J" not in page
    if not colors:
        plain = written(TextPage(Colors(False)), hostile_thread())
        assert "\x1b" not in plain
        assert ATTACK[:30] in plain


def test_letters_that_are_written_as_numbers_are_seen_on_a_terminal() -> None:
    page = written(TextPage(Colors(True), markdown_for(80, colors=True)), thread(turn(1, said("a&#8238;b &#27;[2J"))))
    assert "\u202e" not in page
    assert "\x1b[2J" not in page


def test_long_outputs_are_cut() -> None:
    lines = "\n".join(map(str, range(1000)))
    page = written(TextPage(Colors(False)), thread(turn(1, command("seq", lines), command("one", "x" * 9_000))))
    assert "  | 29\n  | … 960 lines left out …\n  | 990\n" in page
    assert "x … 7000 more" in page


def test_json_has_every_item() -> None:
    whole = thread(turn(1, *(item for item, _ in ITEMS)), turn(2, user("x")))
    assert written(JsonPage(), whole).count('"type":"hologram"') == 1
