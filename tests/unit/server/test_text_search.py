"""Where something was said: every place, in its order, in the middle of what is around it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.server import AFTER, BEFORE, cut, places, snippet
from treadle.store import MessageText


def message(number: int, text: str) -> MessageText:
    return MessageText(number, f"item-{number}", number, f"turn-{number}", text)


def in_utf16(text: str, start: int, end: int) -> str:
    return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le")


# Letters whose cases have other lengths are left out: İ and ß.
texts = st.text(alphabet=st.sampled_from("aAbB äÄ🍌\n.*"), max_size=300)


@given(st.lists(texts, max_size=4), st.text(alphabet=st.sampled_from("aBä🍌.*"), min_size=1, max_size=3))
def test_the_range_is_that_of_the_part(said: list[str], part: str) -> None:
    messages = [message(number, text) for number, text in enumerate(said)]
    found = places(messages, part, (0, 0), 10_000)
    assert len(found) == sum(text.lower().count(part.lower()) for text in said)
    for place in found:
        shown = in_utf16(place.snippet, place.range.start, place.range.end)
        assert shown.lower() == part.lower()
        assert len(place.snippet) <= BEFORE + len(part) + AFTER + len("... ") + len(" ...")


@given(st.lists(texts, max_size=4), st.integers(1, 5))
def test_pages_are_all_of_it(said: list[str], limit: int) -> None:
    messages = [message(number, text) for number, text in enumerate(said)]
    everything = places(messages, "a", (0, 0), 10_000)
    pages, first = [], (0, 0)
    while page := places(messages, "a", first, limit):
        pages += page
        first = page[-1].message.number, page[-1].index + 1
    assert pages == everything


def test_what_is_left_out_shows() -> None:
    text = "x" * 100 + "loom" + "y" * 100
    around, place = cut(text, 100, 104)
    assert around == "... " + "x" * BEFORE + "loom" + "y" * AFTER + " ..."
    assert (place.start, place.end) == (4 + BEFORE, 8 + BEFORE)
    assert cut("loom", 0, 4)[0] == "loom"


def test_a_snippet_is_one_line() -> None:
    assert snippet("The  old\n\tLoom is\nhere", "loom is") == "The old Loom is here"
    assert snippet("z" * 300 + " The Loom", "the loom").endswith("The Loom")
    assert snippet("Über den Webstuhl", "uber") == "Über den Webstuhl"
