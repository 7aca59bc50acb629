"""The models that a provider lists, in the formats that servers use, with the sizes and prices they report.

It owns the requests (`GET /models`; of Ollama also what it has loaded) and parses the responses. It asks once, with a
deadline: a list is not worth waiting for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from treadle.llm.catalogue import Price
from treadle.llm.model import ModelError
from treadle.llm.provider import Endpoint, KeySource, ProviderConfig, endpoint
from treadle.llm.provider_client import ProviderClient
from treadle.llm.wire_api import WireApi, find_wire_api

DEADLINE_S: Final = 10.0
# The longest known list, that of a gateway with some hundred models, has about one.
MAX_BYTES: Final = 16 * 1024 * 1024

_PATH: Final = "/models"
_LOADED: Final = "/api/ps"
OLLAMA: Final = "ollama"
_HEADERS: Final = {"accept": "application/json"}
_MILLION: Final = 1_000_000

# What servers call the size of the context, and the most that a model writes.
_WINDOWS: Final = ("context_length", "context_window", "max_model_len", "max_input_tokens", "max_context_length")
_LIMITS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class ModelListing(Struct, frozen=True, kw_only=True):
    """A model as its provider lists it; None for what the list does not have."""

    id: str
    name: str
    context_window: int | None = None
    output_limit: int | None = None
    price: Price | None = None


async def list_provider_models(
    config: ProviderConfig,
    *,
    wire: WireApi | None = None,
    login_key: KeySource | None = None,
    environ: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> list[ModelListing]:
    """The models of a provider, in its order. Raises `ModelError`.

    Args:
        config: The provider.
        wire: Its wire API, where it is not found by its name.
        login_key: Gives the key of the user's login, if there is one.
        environ: The environment, for keys.
        deadline_s: How long it may take in all.
    """
    wire = find_wire_api(config.wire_api) if wire is None else wire
    query = {**config.query_params, **wire.models_query}
    asked = structs.replace(config, request_max_retries=0, query_params=query)
    headers = {**wire.headers, **_HEADERS}

    def place(server: ProviderConfig, path: str) -> Endpoint:
        return endpoint(server, path, headers, wire.key_header, login_key=login_key, environ=environ)

    async def get(where: Endpoint) -> list[ModelListing]:
        exchange = await connection.send(where, None)
        try:
            body = bytearray()
            while piece := await exchange.read():
                body += piece
                if len(body) > MAX_BYTES:
                    raise ModelError(f"the list of models is longer than {MAX_BYTES} bytes, url: {where.shown}")
        finally:
            await exchange.aclose()
        return read_listings(bytes(body), where.shown)

    first = place(asked, _PATH)
    connection = ProviderClient(asked, wire.failure)
    try:
        async with asyncio.timeout(deadline_s):
            listed = await get(first)
            if config.id != OLLAMA:
                return listed
            # Its list has no sizes; what it has loaded has the one that it was loaded with.
            try:
                loaded = await get(place(structs.replace(asked, base_url=config.base_url.removesuffix("/v1")), _LOADED))
            except ModelError:
                return listed
            windows = {offer.id: offer.context_window for offer in loaded}
            return [
                structs.replace(offer, context_window=windows.get(offer.id) or offer.context_window) for offer in listed
            ]
    except TimeoutError:
        raise ModelError(f"no list of models within {deadline_s:.0f} s, url: {first.shown}") from None
    finally:
        await connection.close()


def read_listings(body: bytes, url: str) -> list[ModelListing]:
    """The list in an answer: `data` of OpenAI and most others, `models` of Ollama, or the list alone."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelError(f"the list of models is no JSON; is the base_url right? url: {url}") from None
    if isinstance(answer, dict):
        answer = next((answer[key] for key in ("data", "models") if isinstance(answer.get(key), list)), None)
    if not isinstance(answer, list):
        raise ModelError(f"the answer is no list of models; is the base_url right? url: {url}")
    return list({offer.id: offer for offer in _read(answer)}.values())


def _read(entries: list[Any]) -> Iterator[ModelListing]:
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        found = next((name for key in ("id", "model", "name") if (name := _text(entry.get(key)))), None)
        if found is None:
            continue
        top = entry.get("top_provider")
        limits = {**entry, **top} if isinstance(top, dict) else entry
        yield ModelListing(
            id=found,
            name=_text(entry.get("display_name")) or _text(entry.get("name")) or found,
            context_window=_first(entry, _WINDOWS),
            output_limit=_first(limits, _LIMITS),
            price=_price(entry.get("pricing")),
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((value for key in keys if type(value := entry.get(key)) is int and value > 0), None)


def _price(pricing: object) -> Price | None:
    """The price as gateways list it: dollars for one token, as texts. Below zero is "it depends"."""
    if not isinstance(pricing, dict):
        return None
    read, wrote = _dollars(pricing.get("prompt")), _dollars(pricing.get("completion"))
    if read is None or wrote is None:
        return None
    return Price(
        input=read,
        output=wrote,
        cached_input=_dollars(pricing.get("input_cache_read")),
        cache_write=_dollars(pricing.get("input_cache_write")),
    )


def _dollars(value: object) -> float | None:
    try:
        amount = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return None
    return round(amount * _MILLION, 6) if 0 <= amount < 1 else None
