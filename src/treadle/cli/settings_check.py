"""Checks the settings before a program runs anything with them, and reports what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable

from treadle.cli.exit_codes import REFUSED
from treadle.cli.model_problem import model_problem
from treadle.cli.problem import Problem
from treadle.cli.streams import write_stderr
from treadle.cli.visible import visible
from treadle.config import Config, ConfigError, find_home, load_config
from treadle.config.login import Login
from treadle.config.stored_keys import key_source
from treadle.llm import ModelError
from treadle.llm.provider import endpoint


def check_turn(command: str, overrides: Iterable[str], model: str | None, *, strict: bool = False) -> Config:
    """For a program that runs a turn: raises `ConfigError`; and `Problem` when there is no key for the model, with
    `strict` also when there is something to warn of."""
    home = find_home(os.environ)
    loaded = load_config(home, overrides=overrides)
    if strict and loaded.warnings:
        why = "\n".join(str(warning) for warning in loaded.warnings)
        do = "treadle config check, or the same again without --strict-config"
        raise Problem("something in the settings has no effect", why=why, do=do, code=REFUSED)
    for warning in loaded.warnings:
        write_stderr(visible(f"treadle {command}: warning: {warning}"))
    _check_key(loaded.config, model)
    return loaded.config


def _check_key(config: Config, model: str | None) -> None:
    choice = config.model_choice(model, None)
    provider = config.providers.get(choice.provider)
    if provider is None:
        return

    try:
        endpoint(provider, "", {}, login_key=key_source(provider, Login(config.home), os.environ))
    except ModelError as error:
        raise model_problem(error, provider, f"{choice.model or 'the model'} cannot be asked") from None


def check_overrides(overrides: Iterable[str]) -> None:
    """For a server, which serves with a broken file too: raises `ConfigError` when it is `-c` that is wrong."""
    try:
        load_config(find_home(os.environ), overrides=overrides)
    except ConfigError as error:
        if error.blames("-c"):
            raise
