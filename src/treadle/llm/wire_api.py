"""`WireApi`: the extension point for kinds of model servers, and the registry of them. Data and pure functions; one
client serves all of them.

A wire API says how a request is written and what the responses mean. The history of a thread is neutral (items of the
Responses API): `encode` turns it into what the server expects, and a `Translator` turns the response back into such
items. No waiting and no clock. Those of other packages are entry points in the group `treadle.wire_apis`, each with the
name of its API and a reference to a `WireApi`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from treadle.errors import TreadleError
from treadle.llm.model import HttpFailure, ModelError, ModelEvent, ModelRequest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from treadle.http.sse import SseEvent
    from treadle.llm.provider import ProviderConfig

GROUP: Final = "treadle.wire_apis"
BUILT_IN: Final = {
    "responses": "treadle.llm.responses",
    "chat": "treadle.llm.chat",
    "anthropic": "treadle.llm.anthropic",
}


class Asking(Struct, frozen=True):
    """Which server a request is for.

    Args:
        provider: Its settings.
        quirks: What this server turned out not to support, in terms that the wire API defines.
    """

    provider: ProviderConfig
    quirks: frozenset[str] = frozenset()


class Translator(Protocol):
    """The reader of one response. Events come in the order that `treadle.llm.model` promises."""

    completed: bool
    """Whether the response is whole; what follows is not read."""

    def receive(self, sse: SseEvent) -> list[ModelEvent]:
        """What an event means. Raises the `ModelError` that the server reports."""

    def end(self) -> list[ModelEvent]:
        """The stream has ended. Raises `ModelError` when that is too early: no half item is ever done."""


def bearer(key: str) -> tuple[str, str]:
    """The header in which most providers want their key."""
    return "authorization", f"Bearer {key}"


def no_other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """No other quirks: a refusal is final."""
    return None


def only_when_said(translator: Translator) -> bool:
    """Never: every server of this API sends an end of the response."""
    return False


class WireApi(Struct, frozen=True, kw_only=True):
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
        models_query: Query parameters of the request for the list of models.
        searches: The values of `web_search` for which the API has a tool that its provider runs: a tool
            `{"type": "web_search"}` of a request is then encoded as that.
    """

    name: str
    path: str
    encode: Callable[[ModelRequest, Asking], bytes]
    translator: Callable[[ModelRequest], Translator]
    failure: Callable[[HttpFailure], ModelError]
    headers: Mapping[str, str] = {}
    key_header: Callable[[str], tuple[str, str]] = bearer
    other_way: Callable[[HttpFailure, frozenset[str]], frozenset[str] | None] = no_other_way
    may_end: Callable[[Any], bool] = only_when_said
    models_query: Mapping[str, str] = {}
    searches: frozenset[str] = frozenset()


def wire_api_names() -> list[str]:
    """The names of all wire APIs, ours first."""
    return [*BUILT_IN, *sorted({name for name in offered() if name not in BUILT_IN})]


def is_wire_api(name: str) -> bool:
    """Whether there is one of this name. Only where it is not ours, other packages are looked at.

    Args:
        name: Such as `responses`.
    """
    return name in BUILT_IN or name in offered()


def offered() -> dict[str, list[EntryPoint]]:
    """The entry points of other packages, by name."""
    from treadle.own_python import plug_ins  # only for names that are not built in

    return plug_ins(GROUP)


class UnknownWireApi(TreadleError):
    """A wire API that does not exist, or cannot be loaded."""


def find_wire_api(name: str) -> WireApi:
    """The wire API of this name. Raises `UnknownWireApi`.

    Args:
        name: Such as `responses`.
    """
    if name in BUILT_IN:
        found: WireApi = import_module(BUILT_IN[name]).WIRE_API
        return found
    points = offered().get(name, [])
    if len(points) != 1:
        why = f"is offered by {len(points)} packages" if points else f"is not one of {', '.join(wire_api_names())}"
        raise UnknownWireApi(f"the wire API {name!r} {why}")
    try:
        loaded = points[0].load()
    except Exception as error:
        raise UnknownWireApi(f"the wire API {name!r} cannot be loaded: {error!r}") from error
    if not isinstance(loaded, WireApi) or loaded.name != name:
        raise UnknownWireApi(f"{points[0].value} is not the WireApi {name!r}")
    return loaded
