"""`History`: what the model has seen of a thread, as items of the Responses API, oldest first; and what is left of it
after a compaction (`history_after`).

It owns two rules. Every call has its output: a turn that was cut short leaves calls without one, and a provider refuses
such a history. And a thought goes back only to the provider that it came from: it may be encrypted or signed, and
another provider refuses what it cannot read. So a thought is stored with its origin, in a member that no provider sees;
and so is every item of a kind that is not neutral, such as a web search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from treadle.config import SUMMARY_PREFIX
from treadle.store.contract import HistoryRecord

if TYPE_CHECKING:
    from treadle.agent.tools.tool import Output

T = TypeVar("T")

# What an item costs in memory beside its JSON: two objects and a place in the list.
_ITEM_BYTES = 128
ABORTED = "aborted: the turn ended before this call did"
_OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
# Such an item begins with this member in the store.
_ORIGIN = b'{"treadle_origin":'


class _View(Struct):
    type: str = ""
    call_id: str | None = None


class _Kept(Struct):
    treadle_origin: str


_view = msgspec.json.Decoder(_View)
_kept = msgspec.json.Decoder(_Kept)


class History:
    __slots__ = ("_bytes", "_items", "_origins")

    def __init__(self, records: Iterable[HistoryRecord] = ()) -> None:
        self._items: list[Raw] = repaired([Raw(record.data) for record in records])
        self._origins: dict[int, str] = {}  # of thoughts, by their place
        for place, item in enumerate(self._items):
            known = _without_origin(bytes(item))
            if known is not None:
                self._origins[place], self._items[place] = known
        self._bytes = sum(len(bytes(item)) for item in self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[Raw]:
        return self._items

    def items_for(self, origin: str) -> Sequence[Raw]:
        """Without the thoughts that others had. Those of nobody known are left to the wire API."""
        foreign = {place for place, known in self._origins.items() if known != origin}
        if not foreign:
            return self._items
        return [item for place, item in enumerate(self._items) if place not in foreign]

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return self._bytes

    @property
    def weight(self) -> int:
        """About what it takes in memory."""
        return self._bytes + _ITEM_BYTES * len(self._items)

    @property
    def tokens(self) -> int:
        """An estimate: there is no tokenizer here."""
        return self._bytes // 4

    def add(self, item: Raw, origin: str | None = None) -> None:
        if origin is not None:
            self._origins[len(self._items)] = origin
        self._items.append(item)
        self._bytes += len(bytes(item))

    def replace(self, items: Sequence[Raw]) -> None:
        self._origins = {}
        self._items = list(items)
        self._bytes = sum(len(bytes(item)) for item in self._items)


def with_origin(item: Raw, origin: str | None) -> bytes:
    """The item as it is stored."""
    if origin is None:
        return bytes(item)
    return _ORIGIN + msgspec.json.encode(origin) + b"," + bytes(item).lstrip()[1:]


def _without_origin(kept: bytes) -> tuple[str, Raw] | None:
    """The origin, and the very bytes that came from it: a cache at the provider may know them."""
    if not kept.startswith(_ORIGIN):
        return None
    try:
        origin = _kept.decode(kept).treadle_origin
    except msgspec.DecodeError:  # a client may inject what it likes
        return None
    before = _ORIGIN + msgspec.json.encode(origin) + b","
    return (origin, Raw(b"{" + kept[len(before) :])) if kept.startswith(before) else None


def repaired(items: Sequence[Raw]) -> list[Raw]:
    """The same, with an output behind every call that has none, and without outputs that have no call."""
    views = [_read(_view, item) or _View() for item in items]
    answered = {view.call_id for view in views if view.type in _OUTPUT_OF.values()}
    called = {view.call_id for view in views if view.type in _OUTPUT_OF}
    result: list[Raw] = []
    for item, view in zip(items, views, strict=True):
        # One without a call id at all was sent by a program, not asked for by the model.
        if view.type in _OUTPUT_OF.values() and view.call_id is not None and view.call_id not in called:
            continue
        result.append(item)
        if view.type in _OUTPUT_OF and view.call_id not in answered:
            known = _without_origin(bytes(item))
            aborted = aborted_output(view.type, view.call_id or "")
            result.append(aborted if known is None else Raw(with_origin(aborted, known[0])))
    return result


def aborted_output(call_type: str, call_id: str) -> Raw:
    return Raw(msgspec.json.encode(output_item(call_type, call_id, ABORTED)))


def output_item(call_type: str, call_id: str, output: Output) -> dict[str, Any]:
    """What a call gets. A search gets tools; one that has failed finds none, and there is no place to say why."""
    item: dict[str, Any] = {"type": _OUTPUT_OF[call_type], "call_id": call_id}
    if call_type != "tool_search_call":
        return {**item, "output": output}
    return {**item, "status": "completed", "execution": "client", "tools": [] if isinstance(output, str) else output}


def _read(decoder: msgspec.json.Decoder[T], item: Raw) -> T | None:
    try:
        return decoder.decode(item)
    except (msgspec.DecodeError, RecursionError):  # injected by a client; the provider will say what it thinks of it
        return None


# What the user said is worth keeping word for word, within reason.
KEPT_USER_TOKENS: Final = 20_000


class _Part(Struct):
    type: str = ""
    text: str = ""


class _Message(Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] | str = ""


_message = msgspec.json.Decoder(_Message)


def history_after(summary: str, items: Sequence[Raw]) -> list[dict[str, Any] | Raw]:
    """The history to go on with.

    Args:
        summary: What the model wrote about its work.
        items: The history until then.
    """
    prefix = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": SUMMARY_PREFIX}]}
    # In the role of who wrote it: it may repeat what a web page or a file said, and that must not become an order.
    summed_up = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": summary}]}
    # What the user said is last, so that the model answers to that, and not to its own words.
    return [prefix, summed_up, *kept_messages(items)]


def kept_messages(items: Sequence[Raw]) -> list[Raw]:
    """What the user said, without what a program said in the user's name, oldest first."""
    kept: list[Raw] = []
    room = KEPT_USER_TOKENS * 4
    for item in reversed(items):
        message = _read(_message, item)
        if message is None or message.type != "message" or message.role != "user":
            continue
        room -= len(bytes(item))
        if room < 0 and kept:  # the newest may be what the turn is about, and is kept however long it is
            break
        kept.append(item)
    return kept[::-1]


def user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
