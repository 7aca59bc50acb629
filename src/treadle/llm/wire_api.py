"""`WireApi`: the extension point for kinds of model servers. Data and pure functions; one client serves all of them.

A wire API says how a request is written and what the responses mean. The history of a thread is neutral (items of the
Responses API): `encode` turns it into what the server expects, and a `Translator` turns the response back into such
items. No waiting and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Struct

from treadle.llm.model import HttpFailure, ModelError, ModelEvent, ModelRequest
from treadle.llm.provider import ProviderConfig, bearer
from treadle.llm.sse import SseEvent


class Asking(Struct, frozen=True):
    """Which server a request is for.

    Args:
        provider: Its settings.
        quirks: What this server turned out not to support, in terms that the wire API defines.
    """

    provider: ProviderConfig
    quirks: frozenset[str] = frozenset()


class Translator(Protocol):
    """One response. Events come in the order that `treadle.llm.model` promises."""

    completed: bool
    """Whether the response is whole; what follows is not read."""

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        """What an event means. Raises the `ModelError` that the server reports."""

    def end(self) -> list[ModelEvent]:
        """The stream has ended. Raises `ModelError` when that is too early: no half item is ever done."""


def no_other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """A refusal is final."""
    return None


def only_when_said(translator: Translator) -> bool:
    """Every server of this API says when a response is over."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class WireApi:
    """How a kind of server is asked.

    Args:
        name: As in `wire_api` of a provider.
        path: Where requests go, below the provider's `base_url`.
        encode: The body of a request.
        translator: What reads the response to a request.
        failure: What a response with another status means.
        headers: Those of every request, in lower case.
        key_header: The header that carries the key.
        other_way: After a refusal: the quirks with which to ask again, if the refusal is about one of them.
        may_end: Whether the response of a translator is whole as it is, although its server has not said that it is
            over: then the client waits only a moment for more.
    """

    name: str
    path: str
    encode: Callable[[ModelRequest, Asking], bytes]
    translator: Callable[[ModelRequest], Translator]
    failure: Callable[[HttpFailure], ModelError]
    headers: Mapping[str, str] = field(default_factory=dict)
    key_header: Callable[[str], tuple[str, str]] = bearer
    other_way: Callable[[HttpFailure, frozenset[str]], frozenset[str] | None] = no_other_way
    may_end: Callable[[Any], bool] = only_when_said
