"""The engine `treadle`: our own, driven like any other. `treadle exec --json` speaks as `codex exec --json` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Unpack

from treadle.own_python import treadle_command
from treadle.runners import codex
from treadle.runners.codex import CodexState
from treadle.runners.engine import Engine, ResumeLine, RunChoices
from treadle.runners.logins import LoginStatus
from treadle.runners.runner import Runner

NAME: Final = "treadle"


def find_login(environ: Mapping[str, str]) -> LoginStatus:
    # Settings and providers are loaded for this question alone: a run leaves them to the program that it starts.
    from treadle.config import ConfigError, find_home, load_config
    from treadle.config.configuration import RUN_KEY_VARIABLE
    from treadle.config.login import Login, key_source
    from treadle.llm import ModelError
    from treadle.llm.known_providers import OPENAI_KEY_VARIABLE
    from treadle.llm.provider import endpoint

    try:
        config = load_config(find_home(environ)).config
        if config.is_offline:
            return LoginStatus(None, "offline model")
        choice = config.model_choice(None, None)
        provider = config.providers.get(choice.provider)
        if provider is not None:
            stored = key_source(provider, Login(config.home), environ)
            given = environ.get(RUN_KEY_VARIABLE) if provider.requires_openai_auth else None
            endpoint(provider, "", {}, login_key=lambda: given or stored(), environ=environ)
        return LoginStatus(True, f"the provider {choice.provider}")
    except ModelError as error:
        if error.kind != "unauthorized" or provider is None:
            return LoginStatus(False, error.message)
        variable = provider.env_key or OPENAI_KEY_VARIABLE
        return LoginStatus(False, f"there is no key for the provider {choice.provider}, and {variable} is not set")
    except ConfigError as error:
        return LoginStatus(False, str(error).partition("\n")[0])


ENGINE: Final[Engine[CodexState]] = replace(
    codex.ENGINE,
    name=NAME,
    program="treadle",
    install="pip install treadle",
    start=partial(codex.new_state, engine=NAME, label="treadle exec"),
    resume=ResumeLine(NAME, "treadle exec resume {}", "treadle(?: exec)? resume"),
    orders=(".treadle", *codex.ENGINE.orders),
    login=find_login,
    log_in="treadle login",
    tested=None,
)


class TreadleRunner(Runner):
    """Runs `treadle exec --json`.

    Args:
        treadle_cmd: The program, or a command line that the arguments are added to; this Treadle without it.
        extra_args: Words before `exec`, such as `["-c", "key=value"]`.
        choices: As `RunOptions`: `treadle exec` asks nobody, so leave `approve` out.
    """

    def __init__(
        self,
        treadle_cmd: str | Sequence[str] | None = None,
        extra_args: Sequence[str] = (),
        **choices: Unpack[RunChoices],
    ) -> None:
        super().__init__(ENGINE, treadle_command() if treadle_cmd is None else treadle_cmd, extra_args, **choices)
