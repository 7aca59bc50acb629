"""Popular models: context sizes, output limits and prices.

It owns a small table, as the vendors published it in November 2026. Nothing is fetched. A model that is not listed
works just as well; only its cost is unknown. `[models."NAME"]` in `config.toml` adds to the table and corrects it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, structs

from treadle.llm.model import TokenUsage

_MILLION: Final = 1_000_000
_DATE: Final = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")
_DOTTED: Final = re.compile(r"(?<=\d)\.(?=\d)")


class LongPrompt(Struct, frozen=True):
    """A request of more than `tokens` input tokens costs a multiple, for all of its tokens."""

    tokens: int
    input: float
    output: float


class Price(Struct, frozen=True, kw_only=True):
    """Dollars per million tokens. Cached and cache-written tokens without a price of their own cost
    the same as input.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    long: LongPrompt | None = None

    def cost(self, usage: TokenUsage) -> float:
        """What a response costs, in dollars; `usage` is that of one response, because the price depends on its size."""
        cached, written = usage.cached_input_tokens, usage.cache_write_input_tokens
        plain = max(0, usage.input_tokens - cached - written)
        read = (
            plain * self.input
            + cached * (self.input if self.cached_input is None else self.cached_input)
            + written * (self.input if self.cache_write is None else self.cache_write)
        )
        wrote = usage.output_tokens * self.output
        if self.long is not None and usage.input_tokens > self.long.tokens:
            read, wrote = read * self.long.input, wrote * self.long.output
        return (read + wrote) / _MILLION


class KnownModel(Struct, frozen=True, kw_only=True):
    """What is known of a model; None is unknown. Sizes are in tokens. The context window holds input and output; if
    part of it is reserved for output, `input_limit` is the rest.
    """

    context_window: int | None = None
    input_limit: int | None = None
    output_limit: int | None = None
    price: Price | None = None
    tool_search: bool | None = None
    """Whether it knows the search for tools of the Responses API."""


UNKNOWN: Final = KnownModel()


_GPT_OUTPUT: Final = 128_000
# Long prompts of OpenAI cost twice as much to read and one and a half times as much to answer.
_OPENAI_LONG: Final = LongPrompt(272_000, 2.0, 1.5)


def _gpt(
    window: int, read: float, cached: float, wrote: float, *, cache_write: bool = True, tool_search: bool | None = None
) -> KnownModel:
    long = _OPENAI_LONG if window > _OPENAI_LONG.tokens * 2 else None
    written = read * 1.25 if cache_write else None
    price = Price(input=read, cached_input=cached, cache_write=written, output=wrote, long=long)
    return KnownModel(
        context_window=window,
        input_limit=window - _GPT_OUTPUT,
        output_limit=_GPT_OUTPUT,
        price=price,
        tool_search=tool_search,
    )


def _claude(
    window: int, limit: int, read: float, cached: float, wrote: float, long: LongPrompt | None = None
) -> KnownModel:
    price = Price(input=read, cached_input=cached, cache_write=read * 1.25, output=wrote, long=long)
    return KnownModel(context_window=window, output_limit=limit, price=price)


CATALOGUE: Final[Mapping[str, KnownModel]] = {
    "offline": KnownModel(price=Price(input=0.0, output=0.0)),
    "gpt-6.1-sol": _gpt(1_050_000, 2.00, 0.10, 10.00),
    "gpt-6.1-terra": _gpt(1_050_000, 1.00, 0.05, 5.00),
    "gpt-6-astra": _gpt(1_050_000, 10.00, 1.00, 50.00),
    "gpt-6-sol": _gpt(1_050_000, 2.00, 0.20, 10.00),
    "gpt-6-luna": _gpt(1_050_000, 0.10, 0.01, 0.50),
    "gpt-5.6-sol": _gpt(1_050_000, 4.00, 0.40, 20.00),  # reduced, says the vendor, until 21 November 2026 or later
    "gpt-5.6-terra": _gpt(1_050_000, 2.00, 0.20, 12.00),
    "gpt-5.6-luna": _gpt(1_050_000, 0.20, 0.02, 1.20),
    "gpt-5.5": _gpt(1_050_000, 5.00, 0.50, 30.00, cache_write=False, tool_search=True),
    "gpt-5.4": _gpt(1_050_000, 2.50, 0.25, 15.00, cache_write=False),
    "gpt-5.4-mini": _gpt(400_000, 0.75, 0.075, 4.50, cache_write=False),
    "gpt-5.4-nano": _gpt(400_000, 0.20, 0.02, 1.25, cache_write=False),
    "gpt-5.3-codex": _gpt(400_000, 1.75, 0.175, 14.00, cache_write=False),
    "claude-fable-5-1": _claude(1_000_000, 128_000, 10.00, 0.25, 50.00),
    "claude-fable-5": _claude(1_000_000, 128_000, 10.00, 1.00, 50.00),
    "claude-opus-5-5": _claude(1_000_000, 128_000, 4.00, 0.20, 20.00),
    "claude-opus-5": _claude(1_000_000, 128_000, 5.00, 0.50, 25.00),
    "claude-sonnet-5-5": _claude(1_000_000, 128_000, 2.00, 0.20, 10.00),
    "claude-sonnet-5": _claude(1_000_000, 128_000, 2.00, 0.20, 10.00),
    "claude-haiku-5-5": _claude(1_000_000, 128_000, 0.10, 0.01, 0.50, LongPrompt(100_000, 5.0, 5.0)),
    "claude-opus-4-8": _claude(1_000_000, 128_000, 5.00, 0.50, 25.00),
    "claude-opus-4-7": _claude(1_000_000, 128_000, 5.00, 0.50, 25.00),
    "claude-opus-4-6": _claude(1_000_000, 128_000, 5.00, 0.50, 25.00),
    "claude-opus-4-5": _claude(200_000, 64_000, 5.00, 0.50, 25.00),
    "claude-sonnet-4-6": _claude(1_000_000, 128_000, 3.00, 0.30, 15.00),
    "claude-sonnet-4-5": _claude(200_000, 64_000, 3.00, 0.30, 15.00),
    "claude-haiku-4-5": _claude(200_000, 64_000, 1.00, 0.10, 5.00),
    # How much they write, and for how much, is a matter of who runs them.
    "gpt-oss-20b": KnownModel(context_window=131_072),
    "gpt-oss-120b": KnownModel(context_window=131_072),
}


def known_model(model: str, more: Mapping[str, KnownModel] = CATALOGUE) -> KnownModel:
    """What is known of a model by its name at any provider, such as `anthropic/claude-opus-5.5` at a gateway.

    Args:
        model: Its name.
        more: A user's own entries, by the exact name; what they leave open is as in the catalogue.
    """
    known = next((CATALOGUE[name] for name in _names(model) if name in CATALOGUE), UNKNOWN)
    own = more.get(model) if more is not CATALOGUE else None
    if own is None:
        return known
    said = {name: value for name in own.__struct_fields__ if (value := getattr(own, name)) is not None}
    return structs.replace(known, **said)


def _names(model: str) -> Iterator[str]:
    """The names under which it may be in the table: as it is, without its vendor, its variant, and its date."""
    yield model
    bare = model.rpartition("/")[2].lower()
    yield bare
    yield bare.replace(":", "-")  # `gpt-oss:20b`, as Ollama has it
    bare = _DATE.sub("", bare.partition(":")[0])  # `:free` and the like
    yield bare
    yield _DOTTED.sub("-", bare)  # gateways write `claude-opus-5.5`
