"""Providers: which of them have a key, whether one answers, and `treadle models`, which lists what one offers.

A key itself is never in what these functions give.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import click
import msgspec
from msgspec import Struct, structs

from treadle.cli.own_process import start_logging
from treadle.cli.problem import model_problem
from treadle.cli.streams import write, write_json, write_stderr
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.user_commands import user_command
from treadle.config import Config, ConfigError, Login, built_in_config, find_home, load_config
from treadle.config.configuration import RUN_KEY_VARIABLE
from treadle.config.login import StoredKeys, find_credential, key_source
from treadle.config.model_catalogue import with_known_facts
from treadle.llm import ModelError, ModelRequest
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI, OPENAI_KEY_VARIABLE
from treadle.llm.model import Completed
from treadle.llm.provider import ProviderConfig
from treadle.llm.provider_model import ProviderModel
from treadle.llm.provider_models import ModelListing, list_provider_models
from treadle.pages.safe_text import printable_line


def usable_settings(home: Path, overrides: Sequence[str] = ()) -> Config:
    """The settings; with a file that cannot be used, or a model that cannot, those with nothing configured: whoever
    is about to mend it must be able to."""
    try:
        return load_config(home, overrides=overrides).config
    except ConfigError:
        return built_in_config(home)


# --- keys ---


class ProviderKey(Struct, frozen=True, kw_only=True):
    """A provider as `treadle login status` shows it.

    Args:
        provider: Its name.
        source: In what its key is: an environment `variable`, a `file` of the home, or `config` itself. None: no key.
        where: The name of the variable, the file, or the key of `config.toml`.
        needs_key: Whether it has to have one.
        used: Whether it is the one that answers.
    """

    provider: str
    source: Literal["variable", "file", "config"] | None = None
    where: str | None = None
    needs_key: bool = True
    used: bool = False


def provider_keys(config: Config, environ: Mapping[str, str]) -> list[ProviderKey]:
    """Every provider that can be asked, and every one that has a stored key."""
    used = config.chosen.provider
    login = Login(config.home)
    listed = []
    for name, provider in config.providers.items():
        found = find_credential(provider, login, environ)
        listed.append(
            ProviderKey(
                provider=provider.id,
                source=None if found is None else found.kind,
                where=None if found is None else found.where,
                needs_key=provider.env_key is not None or provider.requires_openai_auth,
                used=name == used,
            )
        )
    stored = StoredKeys(config.home)
    others = (name for name in stored.providers() if name not in config.providers)
    listed += [ProviderKey(provider=name, source="file", where=str(stored.path), used=name == used) for name in others]
    return listed


def provider_names(config: Config) -> list[str]:
    """The providers that a key can be stored for."""
    return [*KNOWN, *(name for name in config.providers if name not in KNOWN and name != OFFLINE)]


def key_variable(name: str, config: Config) -> str | None:
    """The environment variable that may hold the key of a provider."""
    provider = config.providers.get(name)
    if provider is None:
        return KNOWN[name].table.get("env_key") if name in KNOWN else None
    return provider.env_key or (OPENAI_KEY_VARIABLE if name == OPENAI and provider.requires_openai_auth else None)


# --- a tiny request ---

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
    """Ask a provider once, without retries: whether it is there, takes the key and has the model. Costs a few tokens. A
    provider without a model of its own that is not in use is asked for its list. Raises `ModelError`."""
    asked = structs.replace(provider, request_max_retries=0)
    if config.chosen.provider == provider.id:
        model: str | None = config.chosen.model
    else:
        model = KNOWN[provider.id].model if provider.id in KNOWN else None
    began = time.monotonic()
    try:
        async with asyncio.timeout(DEADLINE_S):
            if model is not None:
                answer = await _ask_model(asked, model, config)
            else:
                keys = key_source(provider, Login(config.home), os.environ)
                offers = await list_provider_models(asked, login_key=keys, environ=os.environ)
                answer = f"it answers, and lists {len(offers)} models"
    except TimeoutError:
        raise ModelError(f"`{provider.id}` did not answer within {DEADLINE_S:.0f} s", kind="unreachable") from None
    return TinyAnswer(answer, time.monotonic() - began)


async def _ask_model(provider: ProviderConfig, name: str, config: Config) -> str:
    keys = key_source(provider, Login(config.home), os.environ)
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


# --- treadle models ---

_MORE: Final = """\
The provider is asked for its list. Sizes are tokens, prices dollars per million tokens; what the provider does not tell
is from the catalogue of Treadle and from [models."NAME"] of config.toml. `*` is the model that is used."""
_HEADS: Final = ("model", "context", "output", "in", "cached", "out")


@user_command(
    "models",
    more=_MORE,
    exit_codes={0: "done", 1: "the provider cannot be asked, or does not answer", 2: "wrong usage or configuration"},
    examples=(
        "treadle models",
        "treadle models --provider ollama",
        "treadle models --provider openrouter --json | jq -r '.[].id'",
    ),
)
@click.option("--provider", metavar="NAME", help="a built-in provider, or a table of config.toml")
@click.option("-p", "--profile", metavar="NAME", help="a table [profiles.NAME] of config.toml")
@click.option("--json", "as_json", is_flag=True, help="all that is known, as one JSON array")
def models(provider: str | None, profile: str | None, as_json: bool, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    overrides = list(config_overrides)
    if profile is not None:
        overrides.append(f"profile={json.dumps(profile)}")
    if provider is not None:
        overrides.append(f"model_provider={json.dumps(provider)}")
    config = load_config(find_home(os.environ), overrides=overrides).config
    try:
        offers = with_known_facts(asyncio.run(_list_models(config)), config)
    except ModelError as error:
        problem = model_problem(error, config.provider, f"{config.model_provider} does not list its models")
        if error.kind == "not_found":  # the usual advice is this very command
            problem.do = f"correct model_providers.{config.model_provider}.base_url in config.toml"
        raise problem from None
    chosen = config.chosen
    if as_json:
        listed = [{**msgspec.to_builtins(offer), "default": offer.id == chosen.model} for offer in offers]
        write_json(listed)
        return 0
    write_stderr(f"{chosen.provider}, because {chosen.because}")
    colors = Colors(wants_color("auto", sys.stdout, os.environ))
    head, *rows = models_table(offers, chosen.model).splitlines()
    rows = [colors.bold(row) if offer.id == chosen.model else row for offer, row in zip(offers, rows, strict=True)]
    write(sys.stdout, "\n".join([colors.dim(head), *rows]) + "\n")
    return 0


async def _list_models(config: Config) -> list[ModelListing]:
    provider = config.provider
    if provider is None:
        return [ModelListing(id=OFFLINE, name="Offline")]
    stored = key_source(provider, Login(config.home), os.environ)
    given = os.environ.get(RUN_KEY_VARIABLE) if provider.requires_openai_auth else None
    return await list_provider_models(provider, login_key=lambda: given or stored())


def models_table(offers: list[ModelListing], default: str) -> str:
    """One line for each model, in columns; the model that is used has a mark."""

    def tokens(count: int | None) -> str:
        return "" if count is None else f"{count:,}"

    def dollars(amount: float | None) -> str:
        return "" if amount is None else f"${amount:.2f}" if round(amount, 2) == amount else f"${amount:.4g}"

    rows: list[tuple[str, ...]] = [_HEADS]
    for offer in offers:
        price = offer.price
        prices = (None, None, None) if price is None else (price.input, price.cached_input, price.output)
        name = printable_line(offer.id) + (" *" if offer.id == default else "")
        rows.append((name, tokens(offer.context_window), tokens(offer.output_limit), *map(dollars, prices)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"
