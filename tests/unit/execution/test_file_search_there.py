"""What another machine says of its files is no more than text: bounded, and never believed to be a path of ours."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from treadle.errors import ExecTimeout
from treadle.execution import MAX_RESULTS, CompletedRun, Environment, search_there

pytestmark = pytest.mark.anyio


class Liar:
    """An environment that answers every command with the same text, and remembers them."""

    def __init__(self, said: bytes, *, in_time: bool = True) -> None:
        self.said = said
        self.in_time = in_time
        self.commands: list[list[str]] = []

    async def run(self, argv: list[str], **_: Any) -> CompletedRun:
        self.commands.append(argv)
        if not self.in_time:
            raise ExecTimeout("it did not end", self.said)
        return CompletedRun(0, self.said, self.said, b"", False)


async def paths(liar: Liar, query: str) -> list[str]:
    found = await search_there(cast("Environment", liar), query, [("root", "/there")])
    return [each.path for each in found]


async def test_a_flood_of_paths_is_bounded() -> None:
    deep, long, many = b"a/" * 50_000, b"a" * 50_000, b"".join(b"a/%d/a\n" % number for number in range(1_000_000))
    begun = time.monotonic()
    assert await paths(Liar(deep + b"\n" + long + b"\nsmall/a\n"), "a") == ["small/a", "small"]
    assert len(await paths(Liar(many), "a")) == MAX_RESULTS
    assert await paths(Liar((b"a" * 4000 + b"\n") * 60), "a" * 256) != []
    assert time.monotonic() - begun < 30


async def test_what_came_until_the_time_was_up_counts() -> None:
    assert await paths(Liar(b"one/main.py\ntwo/mai", in_time=False), "main") == ["one/main.py"]


async def test_what_fits_is_looked_for_there_without_what_a_pattern_would_mean() -> None:
    liar = Liar(b"")
    await paths(liar, "x [m.a*i-n'\"$(id) y")
    assert liar.commands[0][4:] == ["m.*a.*i.*-.*n.*i.*d"]
    assert await paths(liar, "  ") == []
    assert len(liar.commands) == 1, "nothing is asked for without letters"
