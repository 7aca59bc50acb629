"""What holds for everything that a client is told of a thread, whatever happened in it (the order is a guarantee)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from system.agent.scene import DELTAS, REPLY, Json, Scene
from treadle.testing import RecordedRequest


async def check_thread(scene: Scene, thread: str, *, asked_for: bool = True) -> None:
    """Everything below, for a thread whose turns have ended and whose client was there from the beginning.

    Not all turns are `asked_for` by name: compactions and goals begin turns of their own.
    """
    messages = scene.client.messages
    own = [message for message in messages if _thread_of(message) == thread]
    check_numbers(own)
    check_turns(messages, thread, asked_for=asked_for)
    check_items(own)
    check_usage(own)
    await check_replay(scene, thread, own)
    check_kept(own, await scene.read(thread))
    check_requests(request for request in scene.model.requests() if request.header("thread-id") == thread)


def _thread_of(message: Json) -> str | None:
    if message["method"] == REPLY:
        return None
    params = message["params"]
    found = params.get("threadId") or params.get("thread", {}).get("id")
    return None if found is None else str(found)


def _turn_of(message: Json) -> str | None:
    params = message["params"]
    found = params.get("turnId") or params.get("turn", {}).get("id")
    return None if found is None else str(found)


def _news(messages: Sequence[Json]) -> list[Json]:
    """Without the questions of the server, which have ids and no number."""
    return [message for message in messages if "id" not in message]


def check_numbers(own: Sequence[Json]) -> None:
    last = 0
    for message in _news(own):
        if message["method"] in DELTAS:
            assert message["seq"] == last, message
        else:
            last += 1
            assert message["seq"] == last, message


def check_turns(messages: Sequence[Json], thread: str, *, asked_for: bool) -> None:
    answered: set[str] = set()
    begun: list[str] = []
    ended: list[str] = []
    said: dict[str, Json] = {}
    status = "idle"
    for message in messages:
        method, params = message["method"], message["params"]
        if method == REPLY:
            turn = params["result"].get("turn")
            if isinstance(turn, dict):
                answered.add(turn["id"])
            continue
        if _thread_of(message) != thread:
            continue
        if method == "thread/status/changed":
            status = params["status"]["type"]
        elif method == "turn/started":
            assert status == "active"
            assert not asked_for or _turn_of(message) in answered, "turn/started came before the response to turn/start"
            assert begun == ended, "two turns at once"
            begun.append(params["turn"]["id"])
        elif method == "turn/completed":
            _check_end(params["turn"], status, said.get(params["turn"]["id"]))
            ended.append(params["turn"]["id"])
            assert ended == begun
        elif _turn_of(message) is not None:
            if method == "item/completed" and params["item"]["type"] == "agentMessage":
                said[params["turnId"]] = params["item"]
            assert [*ended, _turn_of(message)] == begun, f"{method} outside of its turn"
    assert begun == ended
    assert len(set(ended)) == len(ended)


def _check_end(turn: Json, status: str, said: Json | None) -> None:
    """`said` is the last message of the turn."""
    repeated = [said] if said is not None and turn["status"] == "completed" else []
    assert turn["items"] == repeated
    assert turn["itemsView"] == ("summary" if repeated else "notLoaded")
    assert status == ("systemError" if turn["status"] == "failed" else "idle")
    assert (turn["error"] is not None) == (turn["status"] == "failed")


def check_items(own: Sequence[Json]) -> None:
    started: dict[tuple[str, str], Json] = {}
    texts: dict[tuple[str, str], str] = {}
    done: set[tuple[str, str]] = set()
    for message in _news(own):
        method, params = message["method"], message["params"]
        if not method.startswith("item/"):
            continue
        key = (
            params["turnId"],
            params["item"]["id"] if "item" in params else params.get("itemId") or params["targetItemId"],
        )
        if method == "item/started":
            assert key not in done
            started[key] = params["item"]  # again, when a response broke off and came anew
            texts[key] = ""
            continue
        assert key in started, f"{method} before item/started"
        assert key not in done, f"{method} after item/completed"
        if method == "item/completed":
            done.add(key)
            _check_text(started[key], texts[key], params["item"])
        elif method in ("item/agentMessage/delta", "item/reasoning/summaryTextDelta", "item/reasoning/textDelta"):
            texts[key] += params["delta"]


def _check_text(begun: Json, deltas: str, item: Json) -> None:
    if item["type"] == "agentMessage":
        assert begun["text"] + deltas == item["text"]
    elif item["type"] == "reasoning":
        assert "".join(begun["summary"] + begun["content"]) + deltas == "".join(item["summary"] + item["content"])
    assert item["startedAtMs"] == begun["startedAtMs"]


def _is_review(message: Json) -> bool:
    return message["method"] == "item/started" and str(message["params"]["item"]["type"]) == "enteredReviewMode"


def check_usage(own: Sequence[Json]) -> None:
    """Every response is counted once. What only says how full the context is counts nothing, and a review says nothing
    of its own context."""
    total = 0
    reviews = {message["params"]["turnId"] for message in own if _is_review(message)}
    for message in own:
        if message["method"] == "thread/tokenUsage/updated":
            usage = message["params"]["tokenUsage"]
            last = usage["last"]
            if message["params"]["turnId"] in reviews:
                assert usage["total"]["totalTokens"] > total
                total = usage["total"]["totalTokens"]
                continue
            total += last["totalTokens"] if last["inputTokens"] or last["outputTokens"] else 0
            assert usage["total"]["totalTokens"] == total


async def check_replay(scene: Scene, thread: str, own: Sequence[Json]) -> None:
    """`thread/events/list` has what was told, to the letter."""
    numbered = [message for message in _news(own) if message["method"] not in DELTAS]
    page = await scene.client.request("thread/events/list", {"threadId": thread, "afterSeq": 0, "limit": 1000})
    assert page["data"] == numbered
    assert page["lastSeq"] == numbered[-1]["seq"]
    assert page["openItems"] == []


def check_kept(own: Sequence[Json], turns: Sequence[Json]) -> None:
    kept = {(turn["id"], item["id"]): item for turn in turns for item in turn["items"]}
    ended = {turn["id"]: turn["status"] for turn in turns}
    completed: list[tuple[str, str]] = []
    for message in own:
        params = message["params"]
        if message["method"] == "item/completed":
            key = (params["turnId"], params["item"]["id"])
            completed.append(key)
            assert kept[key] == params["item"]
        elif message["method"] == "turn/completed":
            assert ended[params["turn"]["id"]] == params["turn"]["status"]
    for turn, item in (key for key in kept if key not in completed):
        assert ended[turn] in ("interrupted", "failed"), "only a turn that was cut short has items without end"
        words = kept[turn, item]["type"] in ("agentMessage", "reasoning")
        assert not (words and ended[turn] == "failed"), "what the model did not finish saying is given up"


def check_requests(requests: Iterable[RecordedRequest]) -> None:
    """Every call has its output behind it, once, and no output is without its call."""
    for request in requests:
        calls: list[Any] = []
        outputs: list[Any] = []
        for item in request.input:
            if item.get("type") == "web_search_call":  # the provider has made it
                continue
            if str(item.get("type")).endswith("_call"):
                calls.append(item["call_id"])
            elif str(item.get("type")).endswith("_call_output"):
                assert item["call_id"] in calls
                outputs.append(item["call_id"])
        assert sorted(calls) == sorted(outputs)
        assert len(set(calls)) == len(calls)
