"""A thread as an HTML page: what is in it, and that nothing in a thread gets out of its place."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thread_samples import (
    PNG,
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
from treadle.pages import MAX_BYTES, MAX_MARKDOWN, HtmlPage, Picture, Pictures, rendered, sent_key
from treadle.protocol.app import Thread, ThreadItem

VOID = {"meta", "img", "br", "hr", "line", "rect"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "article", "figure"),
    *("figcaption", "nav", "div", "span", "p", "a", "h1", "h2", "h3", "h4", "h5", "h6", "dl", "dt", "dd", "ul", "ol"),
    *("li", "details", "summary", "pre", "code", "strong", "em", "s", "blockquote", "hr", "br", "table", "thead"),
    *("tbody", "tr", "th", "td", "ins", "del", "img", "svg", "g", "rect", "line", "text"),
}
ATTRIBUTES = {
    *(
        "class",
        "id",
        "href",
        "rel",
        "title",
        "dir",
        "lang",
        "open",
        "src",
        "alt",
        "start",
        "charset",
        "content",
        "name",
    ),
    *("http-equiv", "aria-label", "role", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "text-anchor"),
}
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Judge(HTMLParser):
    """Reads a page as a browser does, and says what is wrong with it."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED:
            self.wrong.append(f"tag {tag}")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.wrong.append(f"attribute {name} of {tag}")
            if name == "href":
                self.links.append(value or "")
                if not re.match(r"#turn-\d+$|https?://|mailto:", value or ""):
                    self.wrong.append(f"link to {value}")
            if name == "src" and not re.match(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", value or ""):
                self.wrong.append(f"source {value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"end of {tag}")

    def handle_data(self, data: str) -> None:
        self.text += data
        if UNSEEN.search(data):
            self.wrong.append(f"unseen letters in {data!r}")

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"comment {data}")


def judged(page: str) -> Judge:
    judge = Judge()
    judge.feed(page)
    judge.close()
    assert judge.wrong == []
    assert judge.open == []
    return judge


def page_of(*items: ThreadItem) -> str:
    return written(HtmlPage(), thread(turn(1, *items)))


def test_everything_is_on_the_page() -> None:
    empty = HtmlPage()
    empty.pictures.seen = {sent_key(1, "/screen.png"): [url(PNG)], "i": [url(PNG)]}
    page = written(empty, rich_thread("/screen.png"))
    text = judged(page).text
    for part in (
        *("Flaky retry test", "gpt-5.5 (openai)", "/home/ada/loom", "fix/retry 8d3f2c19aa01", "$0.0738"),
        *("Find out why, and fix it", "Thought", "exit 1", "1 min 4 s", "1 failed in 3.12s", "declined, and not run"),
        *("src/retry.py", "+4", "−3", "Make the clock a parameter", "1 of 3 done", "docs.search", "no such index"),
        *("summarised", "Proposed plan", "hologram", "the model could not be reached", "3 commands (2 failed)"),
        "3 files changed",
    ):
        assert part in text, part
    assert page.count('<img src="data:image/png;base64,') == 2
    assert '<span class="add">+        self._clock = clock</span>' in page
    assert '<td class="to-right">7 of 200</td>' in page
    assert '<a href="https://example.org/notes" rel="noopener noreferrer nofollow">' in page
    assert '<span class="elsewhere" title="/home/ada/loom/retry.py:41">retry.py</span>' in page


def test_files_are_named_from_the_directory_of_the_thread() -> None:
    page = page_of(changes(updated("/home/ada/loom/src/a.py", "+x"), updated("/home/ada/loom2/b.py", "+x")))
    assert "<code>src/a.py</code>" in page
    assert "<code>/home/ada/loom2/b.py</code>" in page


def test_nothing_is_fetched_and_nothing_runs() -> None:
    page = written(HtmlPage(), rich_thread())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "<script" not in page
    assert "style=" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_a_hostile_thread_stays_in_its_place() -> None:
    judge = judged(written(HtmlPage(), hostile_thread()))
    assert "<script>document.title=" in judge.text  # it is there to be read
    assert "\\u202egnp.exe" in judge.text
    assert not [link for link in judge.links if link.lower().startswith(("javascript", "data"))]


@pytest.mark.parametrize("letter", ["&#8238;", "&#x202E;", "&#27;", "&ZeroWidthSpace;&#8294;"])
def test_letters_that_are_written_as_numbers_are_no_way_around(letter: str) -> None:
    judged(page_of(said(f"a{letter}b `{letter}` [x](https://a.example/{letter} '{letter}') ![{letter}](x)")))


PARTS = [*"<>\"'&`*_[]()!#|~-\n \\/:=;a\x1b\u202e", "script", "javascript:", "<!--", "&#60;", "&#8238;"]
HOSTILE = st.lists(st.sampled_from(PARTS)).map("".join)


@given(text=HOSTILE)
@settings(max_examples=75)
def test_any_text_in_any_place(text: str) -> None:
    whole: Thread = thread(
        turn(1, user(text), said(text), command(text, text, 1), changes(updated(text, text))), name=text, cwd=text
    )
    judged(written(HtmlPage(), whole))


def test_long_outputs_are_cut_in_the_middle() -> None:
    lines = "\n".join(f"line {number}" for number in range(10_000))
    page = page_of(command("make", lines), command("one", "x" * 1_000_000))
    assert "9,500 lines left out" in page
    assert "line 399\n" in page
    assert "line 9999" in page
    assert len(page) < 40_000


def test_a_very_long_message_is_shown_as_it_is() -> None:
    text = "*a* <b>\n" * (MAX_MARKDOWN // 8 + 1)
    shown = rendered(text)
    assert shown.startswith('<pre class="plain">*a* &lt;b&gt;')
    assert shown.count("*a*") == text.count("*a*")


# --- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_are_told_by_their_content() -> None:
    pictures = Pictures()
    pictures.seen = {"good": [url(PNG)], "bad": [url(b"root:x:0:0:")]}
    assert (pictures.address(Picture(path="/good.txt", id="good")) or "").startswith("data:image/png;base64,")
    assert pictures.address(Picture(path="/bad.png", id="bad")) is None


def test_a_drawing_with_code_is_no_picture() -> None:
    assert Pictures().address(Picture(url="data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+")) is None
    assert Pictures().address(Picture(url="data:image/png;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+")) is None
    assert Pictures().address(Picture(url="https://example.org/x.png")) is None
    assert Pictures().address(Picture(url="data:image/png;base64,!!")) is None


def test_a_file_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "now.png").write_bytes(PNG)
    os.mkfifo(tmp_path / "pipe.png")
    for path in (str(tmp_path / "now.png"), str(tmp_path / "pipe.png"), "/dev/zero", "nul\0", "\ud800"):
        assert Pictures().address(Picture(path=path)) is None
        assert Pictures().address(Picture(path=path, id="call")) is None


def test_the_same_path_in_another_turn_is_another_picture() -> None:
    pictures = Pictures()
    pictures.seen = {sent_key(1, "/a.png"): [url(PNG), url(PNG + b"2")], sent_key(2, "/a.png"): [url(PNG + b"3")]}
    shown = []
    for pictures.turn in (1, 1, 1, 2, 3):
        shown.append(pictures.address(Picture(path="/a.png")))
    assert shown == [url(PNG), url(PNG + b"2"), None, url(PNG + b"3"), None]


def test_pictures_have_a_limit_each_and_together() -> None:
    pictures = Pictures(room=len(PNG) * 2)
    pictures.seen = {"large": [url(PNG + bytes(MAX_BYTES))], "small": [url(PNG)] * 3}
    assert Pictures().address(Picture(url=url(PNG + bytes(MAX_BYTES)))) is None
    assert pictures.address(Picture(path="/large.png", id="large")) is None
    found = [pictures.address(Picture(path="/small.png", id="small")) is not None for _ in range(3)]
    assert found == [True, True, False]


def url(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"
