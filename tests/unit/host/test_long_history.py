"""A conversation of which only the end fits into a model."""

from __future__ import annotations

import pytest

from treadle.host import LEFT_OUT, LocalRuntime, Message, Opening, TurnEnded, recent
from treadle.testing import MockModel


def turns(count: int, words: str = "x") -> list[Message]:
    found: list[Message] = []
    for number in range(count):
        found += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number} {words}"}]
    return found


def test_what_fits_is_left_as_it_is() -> None:
    history = turns(3)
    assert recent(history, 1000) is history
    assert recent([], 0) == []


def test_the_end_is_kept_from_something_that_the_user_said_on() -> None:
    history = turns(100)
    kept = recent(history, 300)
    assert kept[0] == {"role": "developer", "content": LEFT_OUT}
    assert kept[1]["role"] == "user"
    assert kept[1:] == history[-len(kept) + 1 :]
    assert 2 < len(kept) < 12


def test_a_message_that_is_too_long_alone_is_left_out() -> None:
    assert recent([*turns(1), {"role": "user", "content": "x" * 1000}], 100) == [
        {"role": "developer", "content": LEFT_OUT}
    ]


@pytest.mark.anyio
async def test_a_thread_goes_on_with_what_its_model_can_read() -> None:
    async def nobody(_: object) -> str:
        return "deny"

    with MockModel() as model:
        model.enqueue_assistant_message("here I am")
        runtime = LocalRuntime(api_key="k-0123456789", base_url=model.base_url, provider="openai", model="tiny-model")
        await runtime.open(Opening(history=tuple(turns(20_000, "word " * 20))), nobody)  # type: ignore[arg-type]
        await runtime.start_turn("are you there?", {})
        while not isinstance(event := await runtime.next_event(), TurnEnded):
            pass
        await runtime.close()
        assert event.status == "completed"
        sent = model.requests()[0]
    assert LEFT_OUT in str(sent.body)
    assert len(sent.body) < 1 << 20
