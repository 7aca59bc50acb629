"""What goes to a terminal: its own sixteen colours, only those that both grounds bear, and links that cannot be used to
send anything else."""

from __future__ import annotations

import io
import os
import re
from urllib.parse import unquote, urlsplit

import pytest
from msgspec import structs
from rich.text import Text

from thread_samples import changes, rich_thread, thread, turn, updated, written
from treadle.cli import (
    Colors,
    TextPage,
    diff_rows,
    drawn_change,
    file_address,
    file_text,
    make_console,
    markdown,
    markdown_for,
    note,
    painted,
    signed,
)
from treadle.pages import ChangeBlock

LINK = re.compile(r"\x1b\]8;[^;]*;([^\x1b]*)\x1b\\")
ANSWER = """\
# Title

A [link](https://example.org), `code`, **bold**, *italic*.

> a quotation

```python
class A:
    def f(self, x: int = 3) -> str:  # why
        return f"{x}" if not None else "x"
```

```diff
-old
+new
```

| a | b |
|---|---|
| 1 | 2 |
"""
EVIL = "/w/a\x1b]0;x\x07\x1b\\b;c d\u202e.py"


def test_no_colour_is_used_that_is_unreadable_on_one_of_two_grounds() -> None:
    shown = painted((markdown(ANSWER), note("x"), *diff_rows(["@@", "+a", "-b", " c"])), 80, colors=True)
    shown += written(TextPage(Colors(True), markdown_for(80, colors=True)), rich_thread())
    used = {int(code) for codes in re.findall(r"\x1b\[([0-9;]+)m", shown) for code in codes.split(";")}
    # Weights, red, green, magenta and cyan: no blue or yellow, no bright ones, no grounds, none of 256.
    assert used <= {0, 1, 2, 3, 4, 31, 32, 35, 36}
    assert {32, 35, 36} <= used


@pytest.mark.parametrize("path", ["/w/plain.py", "/w/with space#1?.py", "/w/über.py", "/w/\udcff.bin", EVIL])
def test_an_address_is_ascii_that_names_the_machine_and_the_file(path: str) -> None:
    address = file_address(path)
    assert address.isascii()
    assert address.isprintable()
    assert ";" not in address
    parts = urlsplit(address)
    assert (parts.scheme, parts.netloc) == ("file", os.uname().nodename)
    assert os.fsencode(unquote(parts.path, errors="surrogateescape")) == os.fsencode(path)


def test_a_change_can_be_clicked_on_a_terminal_and_nowhere_else() -> None:
    block = ChangeBlock("update", "src/x.py", ("+a",), "completed", "/w/src/x.py")
    assert LINK.findall(painted(tuple(drawn_change(block)), 80, colors=True)) == [file_address("/w/src/x.py"), ""]
    pipe = io.StringIO()
    make_console(pipe).print(*drawn_change(block))
    assert "\x1b" not in pipe.getvalue()
    whole = thread(turn(1, changes(updated("/w/src/x.py", "@@\n+a\n"))))
    assert LINK.findall(written(TextPage(Colors(True), links=True), whole)) == [file_address("/w/src/x.py"), ""]
    assert not LINK.findall(written(TextPage(Colors(True)), whole))


def test_a_name_sends_nothing_to_the_terminal_but_its_link() -> None:
    block = structs.replace(ChangeBlock("add", EVIL, ("+a",), "completed"), file=EVIL)
    shown = painted((*drawn_change(block), file_text(EVIL), signed("!", Text("x"))), 200, colors=True)
    left = re.sub(r"\x1b\[[0-9;]*m", "", LINK.sub("", shown))
    assert "\x1b" not in left
    assert "\x07" not in left
    assert "\\x1b]0;x\\x07" in left
    assert not LINK.findall(painted((file_text("relative.py"),), 80, colors=True))
