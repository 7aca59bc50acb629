"""Checks the settings before a command runs a turn with them, and reports what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable

from treadle.cli.problem import Problem, model_problem
from treadle.cli.streams import REFUSED, write_stderr
from treadle.cli.terminal import printable
from treadle.config import Config, Login, find_home, load_config
from treadle.config.login import key_source
from treadle.llm import ModelError
from treadle.llm.provider import endpoint


def check_turn(command: str, overrides: Iterable[str], model: str | None, *, strict: bool = False) -> Config:
    """The settings, for a command that runs a turn. Raises `ConfigError`; and `Problem` when there is no key for the
    model, with `strict` also when there is something to warn of."""
    loaded = load_config(find_home(os.environ), overrides=overrides)
    if strict and loaded.warnings:
        why = "\n".join(str(warning) for warning in loaded.warnings)
        do = "treadle config check, or the same again without --strict-config"
        raise Problem("something in the settings has no effect", why=why, do=do, code=REFUSED)
    for warning in loaded.warnings:
        write_stderr(printable(f"treadle {command}: warning: {warning}"))
    config = loaded.config
    choice = config.model_choice(model, None)
    provider = config.providers.get(choice.provider)
    if provider is not None:
        try:
            endpoint(provider, "", {}, login_key=key_source(provider, Login(config.home), os.environ))
        except ModelError as error:
            raise model_problem(error, provider, f"{choice.model or 'the model'} cannot be asked") from None
    return config
