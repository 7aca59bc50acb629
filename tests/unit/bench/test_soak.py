"""The parts of the soak whose mistakes would look like results: what counts as lost, doubled and torn."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from bench.soak import fuzz
from bench.soak.follower import Follower, Message, read_message, read_params
from bench.soak.kills import Keeper
from bench.soak.meter import Sample
from bench.soak.model import SLOW_PIECES, pieces_of, wish_of
from bench.soak.report import series, slope, table
from bench.soak.worker import Tally

pytestmark = pytest.mark.anyio

ITEM = {"type": "agentMessage", "id": "m", "text": ""}


def message(seq: int | None, method: str = "thread/status/changed", **params: Any) -> Message:
    numbered = {} if seq is None else {"seq": seq}
    return read_message(json.dumps({"method": method, "params": {"threadId": "t", **params}, **numbered}).encode())


def tell(follower: Follower, *messages: Message) -> Follower:
    for each in messages:
        follower.hear(each, read_params(each.params))
    return follower


async def test_what_is_lost_and_what_is_doubled() -> None:
    follower = tell(Follower("t"), message(1), message(2), message(None), message(2), message(5))
    assert (follower.events, follower.lost, follower.doubled) == (4, 2, 1)


@pytest.mark.parametrize(("deltas", "torn"), [(["He", "llo"], 0), (["He"], 1), (["He", "llo", "llo"], 1)])
async def test_texts_are_compared_with_their_deltas(deltas: list[str], torn: int) -> None:
    follower = tell(Follower("t"), message(1, "item/started", item=ITEM))
    tell(follower, *(message(1, "item/agentMessage/delta", itemId="m", delta=delta) for delta in deltas))
    tell(follower, message(2, "item/completed", item={**ITEM, "text": "Hello"}))
    assert (follower.torn, follower.lost, follower.doubled) == (torn, 0, 0)


async def test_coming_back_takes_what_was_missed_and_then_what_waited() -> None:
    follower = tell(Follower("t"), message(1), message(2, "turn/started", turn={"id": "u"}))
    follower.hold()
    tell(follower, message(4), message(6), message(7, "turn/completed", turn={"id": "u", "status": "completed"}))
    missed = [
        message(3, "item/started", item=ITEM),
        message(4),
        message(5, "item/completed", item={**ITEM, "text": "x"}),
    ]
    follower.catch_up([*missed, message(6)], 5)
    assert (follower.lost, follower.doubled, follower.torn) == (0, 0, 0)
    assert await follower.end_of("u") == "completed"


async def test_coming_back_notices_what_is_missing_or_told_again() -> None:
    follower = tell(Follower("t"), message(1))
    follower.hold()
    tell(follower, message(4, "item/started", item=ITEM), message(4, "item/started", item=ITEM))
    follower.catch_up([message(2)], 3)
    assert (follower.lost, follower.doubled) == (1, 1)


def test_the_model_does_what_was_said_last() -> None:
    def body(*items: Any) -> bytes:
        return json.dumps({"input": items}).encode()

    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "soak:patch t"}]}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}
    assert wish_of(body(said)) == "patch t"
    assert wish_of(body(said, output)) == ""
    assert wish_of(body({**said, "content": "soak:patch"})) == ""
    assert b"apply_patch" in pieces_of("patch t", 5)[0]
    assert b"exec_command" in pieces_of("command t", 5)[0]
    assert b"head -c 1000 /dev/zero" in pieces_of("command 1000", 5)[0]
    assert len(pieces_of("slow t", 5)) > SLOW_PIECES
    head, _, rest = b"".join(pieces_of("slow t", 5)).partition(b"\r\n\r\n")
    assert f"content-length: {len(rest)}".encode() in head


def test_the_tables() -> None:
    samples = [Sample(float(at), at * 10, 25.0 + at, 7, 1) for at in range(100)]
    tally = Tally(seconds=[0.001 * number for number in range(1, 101)])
    tally.turns["plain"] = 1_000
    shown = table(samples, tally, [])
    assert "| turns | 1,000 in 0 threads (1,000 plain) |" in shown
    assert "| memory at the start, when warm, at the end, peak | 25.0, 35.0, 124.0, 124.0 MB |" in shown
    assert "| latency of a plain turn: p50, p99, max | 51.0, 100.0, 100.0 ms |" in shown
    assert "| memory per 10,000 turns, over the second half | +1000.00 MB |" in shown
    assert len(series(samples).splitlines()) == 2 + 10 + 1


def test_the_series_goes_by_turns() -> None:
    """Also when nothing happened for most of the time."""
    samples = [Sample(float(at), max(0, at - 90) * 10, 25.0, 7, 1) for at in range(101)]
    turns = [line.split("|")[2].strip() for line in series(samples).splitlines()[2:]]
    assert turns == [str(number) for number in range(0, 101, 10)]
    assert slope(samples[:50]) == 0.0


def test_no_mutation_acts_on_the_machine() -> None:
    """The fuzzer runs against a real server: nothing about files, commands or settings may come out of it."""
    rng = random.Random(3)
    templates = fuzz._templates("01a1dcbc-6c44-7ea1-8238-647d4750d13d")
    kinds = Counter[str]()
    for _ in range(5_000):
        data = fuzz.mutated(rng.choice(templates), rng)
        assert not any(word.encode() in data for word in fuzz._NEVER)
        try:
            method = msgspec.json.decode(data).get("method")
        except (msgspec.DecodeError, AttributeError):
            kinds["no message"] += 1
            continue
        kinds["as it was" if method in [each.get("method") for each in templates] else "changed"] += 1
    assert min(kinds[name] for name in ("no message", "as it was", "changed")) > 100


async def test_a_keeper_remembers_what_was_announced() -> None:
    keeper = Keeper("t")
    done = {"type": "commandExecution", "id": "c"}
    tell(keeper, message(1, "item/started", item=done), message(2, "item/completed", item={**ITEM, "text": "x"}))
    assert keeper.announced == {"m": "x"}
