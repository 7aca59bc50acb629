"""What commands are shown as doing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.app import (
    CommandAction,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
)
from treadle.tools import command_actions

CWD = "/work"


def _read(command: str, path: str) -> CommandAction:
    return ReadCommandAction(command=command, name=path.rpartition("/")[2], path=path)


def _files(command: str, path: str | None = None) -> CommandAction:
    return ListFilesCommandAction(command=command, path=path)


def _search(command: str, query: str, path: str | None = None) -> CommandAction:
    return SearchCommandAction(command=command, query=query, path=path)


# The first ones are what the real program says, from its transcripts.
@pytest.mark.parametrize(
    ("cmd", "expected"),
    [
        ("rg -n foo src; ls -la", [_search("rg -n foo src", "foo", "src"), _files("ls -la")]),
        ("cat a.txt c.txt | head -2", None),
        ("echo hi; echo err >&2; exit 3", None),
        ("git status", None),
        ("sleep 1; echo done", None),
        ("touch esc.txt && echo ok", None),
        ("cat a.txt", [_read("cat a.txt", "/work/a.txt")]),
        ("cat -n /etc/hosts", [_read("cat -n /etc/hosts", "/etc/hosts")]),
        ("head -n 20 src/x.py", [_read("head -n 20 src/x.py", "/work/src/x.py")]),
        ("tail -5 x", [_read("tail -5 x", "/work/x")]),
        ("sed -n '1,80p' src/x.py", [_read("sed -n '1,80p' src/x.py", "/work/src/x.py")]),
        ("nl -ba x.py | sed -n '5,9p'", [_read("nl -ba x.py", "/work/x.py")]),
        ("cd src && cat x.py", [_read("cat x.py", "/work/src/x.py")]),
        ("ls", [_files("ls")]),
        ("ls -la src | wc -l", [_files("ls -la src", "src")]),
        ("tree -L 2 src", [_files("tree -L 2 src", "src")]),
        ("rg --files -g '*.py' src", [_files("rg --files -g '*.py' src", "src")]),
        ("find . -type f", [_files("find . -type f", ".")]),
        ("find src -name '*.py'", [_search("find src -name '*.py'", "*.py", "src")]),
        ("fd -e py test", [_search("fd -e py test", "test")]),
        ("grep -rn 'a b' src", [_search("grep -rn 'a b' src", "a b", "src")]),
        ("grep -n -e x y.py | head -n 5", [_search("grep -n -e x y.py", "x", "y.py")]),
        ("rg 'foo|bar' a b", [_search("rg 'foo|bar' a b", "foo|bar")]),
        ("git grep -n foo -- src", [_search("git grep -n foo -- src", "foo", "src")]),
        ("rg foo *.py", [_search("rg foo *.py", "foo", "*.py")]),
        # Not understood, or with an effect.
        ("", None),
        ("cd src", None),
        ("cat *.py", None),
        ("cat -", None),
        ("cat a > b", None),
        ("cat $(x)", None),
        ("cat a; rm b", None),
        ("ls | sort -o x", None),
        ("tree -o x", None),
        ("ls | xargs rm", None),
        ("sed -i s/a/b/ x", None),
        ("sed -n -i x", None),
        ("find . -delete", None),
        ("find . -exec rm x", None),
        ("fd -x rm", None),
        ("rg --pre ./evil x", None),
        ("head -5", None),
        ("FOO=1 cat x", None),
        ("ls a b", None),
    ],
)
def test_actions(cmd: str, expected: list[CommandAction] | None) -> None:
    actions = command_actions(cmd, CWD)
    assert list(actions) == ([UnknownCommandAction(command=cmd)] if expected is None else expected)


@given(
    st.text(),
    st.lists(st.sampled_from(["cat", "rg", "find", "-e", "-name", "ls", "|", "&&", ";", "-", "--", "x", "'"])),
)
def test_every_text_has_actions(text: str, words: list[str]) -> None:
    for cmd in (text, " ".join(words)):
        assert command_actions(cmd, CWD)
