"""`docs/command-line.md` has every command, and the examples that commands show can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

import click
import pytest
from scripts import make_command_line

from treadle.cli import ROOT, SERVE

PAGE: Final = make_command_line.TARGET.read_text()


def _examples() -> Iterator[str]:
    for _, command, _ in make_command_line.command_paths():
        yield from (line for line in getattr(command, "examples", ()) if not line.startswith(" "))


@pytest.mark.parametrize("line", list(_examples()))
def test_an_example_is_understood(line: str) -> None:
    calls = list(_calls(line))
    assert calls
    for words in calls:
        _parse(ROOT, words, click.Context(ROOT, info_name="treadle"))


def _calls(line: str) -> Iterator[list[str]]:
    """The words behind each `treadle` of a line, up to a pipe, a redirection or the end of a substitution."""
    lexer = shlex.shlex(line.replace('"$(', "$(").replace(')"', ")"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    call: list[str] | None = None
    for word in lexer:
        if word == "treadle" and call is None:
            call = []
        elif call is not None and set(word) <= set("|<>;&()"):
            yield call
            call = None
        elif call is not None:
            call.append(word)
    if call is not None:
        yield call


def _parse(command: click.Command, words: list[str], above: click.Context) -> None:
    """As click does it, but nothing is run. A word that is not understood is an error."""
    if not isinstance(command, click.Group):
        command.make_context(command.name, words, parent=above)
        return
    name, found, rest = command.resolve_command(above, words)
    assert found is not None
    assert name not in SERVE
    _parse(found, rest, click.Context(found, info_name=name, parent=above))


def test_only_what_is_meant_for_people_is_on_the_page() -> None:
    assert "SUPPRESS" not in PAGE
    assert "`on-failure`" not in PAGE
