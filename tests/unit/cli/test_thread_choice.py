"""Which thread is meant: by id, name, or the beginning or end of an id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from thread_samples import thread
from treadle.cli import Problem, find_threads, newest_threads, several_meant, thread_to_resume
from treadle.client import AsyncAppServerClient, InvalidRequestError
from treadle.errors import INVALID_REQUEST
from treadle.pages import title_of
from treadle.protocol.app import Thread, ThreadListParams

pytestmark = pytest.mark.anyio

IDS = [f"0199a6b{number}-7c31-7f52-9d0e-5b8f4a2c1d{number}e" for number in range(4)]


def _thread(number: int, name: str | None = None) -> Thread:
    return structs.replace(thread(), id=IDS[number], name=name)


class Client:
    """What is asked of a client: two lists, a page of one thread at a time."""

    def __init__(self, threads: list[Thread], archived: list[Thread] | None = None) -> None:
        self._lists = {False: threads, True: archived or []}
        self.listed = 0

    async def thread_list(self, params: ThreadListParams) -> Any:
        self.listed += 1
        found = [one for one in self._lists[bool(params.archived)] if not params.search_term or one.name]
        at = int(params.cursor or 0)
        return SimpleNamespace(data=found[at : at + 1], next_cursor=str(at + 1) if at + 1 < len(found) else None)

    async def thread_read(self, thread_id: str) -> Any:
        for one in (*self._lists[False], *self._lists[True]):
            if one.id == thread_id:
                return SimpleNamespace(thread=one)
        raise InvalidRequestError(INVALID_REQUEST, "no such thread", None)


def client(*threads: Thread, archived: list[Thread] | None = None) -> AsyncAppServerClient:
    return cast("AsyncAppServerClient", Client(list(threads), archived))


async def _found(asked: AsyncAppServerClient, word: str, **options: Any) -> list[str]:
    return [one.id for one in await find_threads(asked, word, **options)]


async def test_an_id_is_found_wherever_it_is_and_in_any_case() -> None:
    asked = client(_thread(0), archived=[_thread(1)])
    assert await _found(asked, IDS[1].upper()) == [IDS[1]]
    assert await _found(asked, IDS[1], id_anywhere=False) == []
    assert await _found(asked, IDS[2]) == []


async def test_a_name_counts_before_the_beginning_of_an_id() -> None:
    asked = client(_thread(0), _thread(1, "0199"), _thread(2, "0199"))
    assert await _found(asked, "0199") == [IDS[1], IDS[2]]


async def test_the_beginning_or_end_of_an_id_needs_four_characters() -> None:
    asked = client(_thread(0), _thread(1))
    assert await _found(asked, "019") == []
    assert await _found(asked, "d1e") == []
    assert await _found(asked, "0199A6b1") == [IDS[1]]
    assert await _found(asked, "2c1D1e") == [IDS[1]]
    assert await _found(asked, "7c31") == []
    several = await find_threads(asked, "0199")
    assert [one.id for one in several] == IDS[:2]
    assert all(number[-8:] in str(several_meant("0199", several)) for number in IDS[:2])


async def test_a_thread_to_resume_is_the_newest_of_its_name_but_no_guess() -> None:
    asked = client(_thread(0, "loom"), _thread(1, "loom"))
    found = await thread_to_resume(asked, "loom")
    assert found is not None
    assert found.id == IDS[0]
    assert await thread_to_resume(asked, "wool") is None
    with pytest.raises(Problem, match="several threads"):
        await thread_to_resume(asked, "0199a6b")


@pytest.mark.parametrize(
    ("preview", "title"),
    [
        ("write a message\n\n<stdin>\ndiff --git a b\n</stdin>", "write a message"),
        ("write a message\n\n<stdin>\ncut off in the mid", "write a message"),
        ("what is <stdin> good for?", "what is <stdin> good for?"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_title_is_without_what_was_piped_in(preview: str, title: str) -> None:
    assert title_of(structs.replace(_thread(0), preview=preview)) == title


async def test_archived_threads_are_found_when_they_are_asked_for() -> None:
    asked = client(_thread(0, "loom"), archived=[_thread(1, "loom")])
    assert await _found(asked, "loom") == [IDS[0]]
    assert await _found(asked, "loom", archived=(True,)) == [IDS[1]]
    assert await _found(asked, "loom", archived=(False, True)) == IDS[:2]


async def test_the_newest_are_as_many_as_were_asked_for() -> None:
    asked = client(*map(_thread, range(4)))
    assert [one.id for one in await newest_threads(asked, 2)] == IDS[:2]
    assert len(await newest_threads(asked, 9)) == 4
