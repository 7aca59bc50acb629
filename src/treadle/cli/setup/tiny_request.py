"""A tiny request to a provider: whether it is there, takes the key and has the model. It costs a few tokens."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from msgspec import Struct, structs

from treadle.config import Config, Login
from treadle.config.stored_keys import key_source
from treadle.llm import ModelError, ModelRequest
from treadle.llm.known_providers import KNOWN
from treadle.llm.model import Completed
from treadle.llm.offers import list_offers
from treadle.llm.provider import KeySource, ProviderConfig
from treadle.llm.provider_model import ProviderModel

DEADLINE_S: Final = 30.0
# The least that all of them take.
_MAX_TOKENS: Final = 16
_QUESTION: Final = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "Answer with the word: ok"}],
}


class TinyAnswer(Struct, frozen=True):
    """What came back.

    Args:
        what: Who answered, in words.
        seconds: How long it took.
    """

    what: str
    seconds: float


async def ask_tiny(provider: ProviderConfig, config: Config) -> TinyAnswer:
    """Ask once, without retries. Raises `ModelError`."""
    asked = structs.replace(provider, request_max_retries=0)
    keys = key_source(provider, Login(config.home), os.environ)
    model = _model(provider.id, config)
    began = time.monotonic()
    try:
        async with asyncio.timeout(DEADLINE_S):
            told = await (_count_models(asked, keys) if model is None else _answer(asked, model, keys))
    except TimeoutError:
        raise ModelError(f"`{provider.id}` did not answer within {DEADLINE_S:.0f} s", kind="unreachable") from None
    return TinyAnswer(told, time.monotonic() - began)


def _model(name: str, config: Config) -> str | None:
    """The one that would be used; None for a provider that has none of its own and is not in use."""
    if config.chosen.provider == name:
        return config.chosen.model
    return KNOWN[name].model if name in KNOWN else None


async def _answer(provider: ProviderConfig, name: str, keys: KeySource) -> str:
    model = ProviderModel(provider, login_key=keys, environ=os.environ)
    request = ModelRequest(
        model=name, input=[_QUESTION], max_output_tokens=_MAX_TOKENS, reasoning_summary=None, retried=True
    )
    tokens = ""
    try:
        async with model.stream(request) as events:
            async for event in events:
                if isinstance(event, Completed) and event.usage is not None:
                    tokens = f" ({event.usage.total_tokens} tokens)"
    except ModelError as error:
        if error.kind != "incomplete":  # it had no room for more, and it did answer
            raise
    finally:
        await model.close()
    return f"{name} answers{tokens}"


async def _count_models(provider: ProviderConfig, keys: KeySource) -> str:
    offers = await list_offers(provider, login_key=keys, environ=os.environ)
    return f"it answers, and lists {len(offers)} models"
