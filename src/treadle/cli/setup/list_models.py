"""`treadle models`: the models that a provider offers, with context size and price where known."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Final

import click
import msgspec

from treadle.cli.model_problem import model_problem
from treadle.cli.people import command as people_command
from treadle.cli.server_process import start_logging
from treadle.cli.streams import write, write_stderr
from treadle.cli.terminal import Colors, wants_color
from treadle.cli.visible import visible_line
from treadle.config import Config, find_home, load_config
from treadle.config.configuration import RUN_KEY_VARIABLE
from treadle.config.login import Login
from treadle.config.model_catalogue import with_known_facts
from treadle.config.model_choice import ModelChoice
from treadle.config.stored_keys import key_source
from treadle.llm import ModelError
from treadle.llm.known_providers import OFFLINE
from treadle.llm.offers import Offer, list_offers

_MORE: Final = """\
The provider is asked for its list. Sizes are tokens, prices dollars per million tokens; what the provider does not tell
is from the catalogue of Treadle and from [models."NAME"] of config.toml. `*` is the model that is used."""
_HEADS: Final = ("model", "context", "output", "in", "cached", "out")


@people_command(
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
def command(provider: str | None, profile: str | None, as_json: bool, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    overrides = list(config_overrides)
    if profile is not None:
        overrides.append(f"profile={json.dumps(profile)}")
    if provider is not None:
        overrides.append(f"model_provider={json.dumps(provider)}")
    config = load_config(find_home(os.environ), overrides=overrides).config
    try:
        offers = with_known_facts(asyncio.run(_ask(config)), config)
    except ModelError as error:
        problem = model_problem(error, config.provider, f"{config.model_provider} does not list its models")
        if error.kind == "not_found":
            problem.do = f"correct model_providers.{config.model_provider}.base_url in config.toml"
        raise problem from None
    if as_json:
        write(sys.stdout, _as_json(offers, config.chosen))
    else:
        write_stderr(f"{config.chosen.provider}, because {config.chosen.because}")
        default = config.chosen.model
        write(sys.stdout, _painted(table(offers, default), [offer.id for offer in offers], default))
    return 0


def _painted(text: str, ids: list[str], default: str) -> str:
    """On a terminal: the head stands back, and the model that is used stands out."""
    colors = Colors(wants_color("auto", sys.stdout, os.environ))
    head, *rows = text.splitlines()
    shown = [colors.bold(row) if name == default else row for name, row in zip(ids, rows, strict=True)]
    return "\n".join([colors.dim(head), *shown]) + "\n"


async def _ask(config: Config) -> list[Offer]:
    provider = config.provider
    if provider is None:
        return [Offer(id=OFFLINE, name="Offline")]

    kept = key_source(provider, Login(config.home), os.environ)
    given = os.environ.get(RUN_KEY_VARIABLE) if provider.requires_openai_auth else None
    return await list_offers(provider, login_key=lambda: given or kept())


def _as_json(offers: list[Offer], choice: ModelChoice) -> str:
    listed = [{**msgspec.to_builtins(offer), "default": offer.id == choice.model} for offer in offers]
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode() + "\n"


def table(offers: list[Offer], default: str) -> str:
    """One line each, in columns; the model that is used has a mark."""
    rows = [_HEADS, *(_row(offer, default) for offer in offers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _row(offer: Offer, default: str) -> tuple[str, ...]:
    price = offer.price
    prices = (None, None, None) if price is None else (price.input, price.cached_input, price.output)
    name = visible_line(offer.id) + (" *" if offer.id == default else "")
    return (name, _tokens(offer.context_window), _tokens(offer.output_limit), *map(_dollars, prices))


def _tokens(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:.2f}" if round(amount, 2) == amount else f"${amount:.4g}"
