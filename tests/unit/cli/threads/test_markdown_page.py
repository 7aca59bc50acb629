"""A thread as Markdown: it reads well, and what somebody left open does not swallow the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from thread_samples import command, hostile_thread, rich_thread, said, thread, turn, user, written
from treadle.cli import MarkdownPage, embedded, fenced, quoted, span

FORGE = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
OURS = ("<details>", "</details>")


def tags(tokens: list[Token]) -> list[str]:
    return [
        token.content
        for token in tokens
        for token in (token, *(token.children or ()))
        if token.type in ("html_block", "html_inline")
    ]


def headings(text: str) -> list[str]:
    tokens = FORGE.parse(text)
    places = [place for place, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0]
    return [tokens[place + 1].content for place in places]


def test_it_reads_well() -> None:
    page = written(MarkdownPage(), rich_thread())
    assert page.startswith("# Flaky retry test\n\n- thread: `0199a6b2-")
    for part in (
        "fails now and then in CI.  \n> Find out why, and fix it:\n>\n> - no sleeps  \n> - keep the API\n",
        "**Plan**\n\n- [x] Reproduce the failure\n- [ ] Make the clock a parameter\n",
        "<details><summary>changed <code>src/retry.py</code> +4 −3</summary>\n\n```diff\n@@ -38,9",
        "| runs that failed | 7 of 200 | 0 of 200 |\n",
        "</code> exit 1 · 1 min 4 s</summary>\n\n```\ntests/test_retry.py F\n",
        "**The turn failed.** the model could not be reached",
        "- cost: $0.0738\n",
    ):
        assert part in page, part
    assert [heading for heading in headings(page) if heading.startswith("Turn")] == ["Turn 1", "Turn 2", "Turn 3"]


@pytest.mark.parametrize(
    "open_end",
    ["```python\nx = 1", "~~~~\nx", "<!-- gone", "<details>", "<script>", "<pre>", "- a\n\n  ```\n  b", "`<!--"],
)
def test_what_is_left_open_ends_with_the_message(open_end: str) -> None:
    page = written(MarkdownPage(), thread(turn(1, user(open_end), said(open_end)), turn(2, said("here"))))
    assert headings(page)[1:] == ["Turn 1", "Turn 2"]
    assert tags(FORGE.parse(page)) == []


def test_a_hostile_thread_has_no_tags_but_ours() -> None:
    page = written(MarkdownPage(), hostile_thread())
    for tag in tags(FORGE.parse(page)):
        assert tag.startswith(OURS), tag
        assert "<script" not in tag
    assert "\u202e" not in page
    assert "\x1b" not in page


@given(st.lists(st.sampled_from([*"<>!-`~ \n\\>*#a", "<!--", "```", "<b>", "    ", "</details>"])).map("".join))
@settings(max_examples=100)
def test_no_text_has_tags(text: str) -> None:
    assert tags(FORGE.parse(embedded(text))) == []
    assert tags(FORGE.parse(quoted(text))) == []


def test_code_stays_as_it_is() -> None:
    text = "Use `<br>` here:\n\n```html\n<br>\n```\n\nand <br> there"
    assert embedded(text) == "Use `<br>` here:\n\n```html\n<br>\n```\n\nand &lt;br> there\n"


def test_a_fence_is_longer_than_any_inside() -> None:
    assert fenced("a\n````\nb", "sh") == "`````sh\na\n````\nb\n`````\n"
    page = written(MarkdownPage(), thread(turn(1, command("cat x", "```\n`````\nend")), turn(2)))
    assert headings(page)[1:] == ["Turn 1", "Turn 2"]


def test_a_span_may_hold_anything() -> None:
    for text in ("a", "`", "a``b", " a ", "<b>"):
        (paragraph,) = [token for token in FORGE.parse(span(text)) if token.type == "inline"]
        assert [child.content for child in paragraph.children or ()] == [text]


def test_long_outputs_are_cut_in_the_middle() -> None:
    page = written(MarkdownPage(), thread(turn(1, command("make", "\n".join(map(str, range(5_000)))))))
    assert "… 4,750 lines left out …" in page
