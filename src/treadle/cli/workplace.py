"""`--environment`: the machine that a thread works on, and the directory there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from treadle.cli.completion import complete_environments
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED
from treadle.client import AsyncAppServerClient
from treadle.client.workplaces import directory_of
from treadle.config.environment_settings import LOCAL
from treadle.errors import RpcError
from treadle.protocol.app.base import JsonObject
from treadle.protocol.app.threads import ThreadEnvironment

environment_option: Final = click.option(
    "--environment",
    metavar="NAME",
    help="the machine to work on, by the name of its environment; --cd is a directory there then",
    shell_complete=complete_environments,
)


async def workplace(client: AsyncAppServerClient, name: str, directory: str | None) -> JsonObject:
    """A place as it is sent. The machine is connected for that, and a relative directory is seen from its own. Raises
    `Problem`."""
    try:
        info = await client.environment_info({"environmentId": name})
    except RpcError as error:
        do = f"treadle environments check {name}; treadle environments list shows which there are"
        raise Problem(f"{name} cannot be worked on", why=error.message, do=do, code=FAILED) from None
    return {"environmentId": name, "cwd": directory_of(name, info, directory or "")}


def shown_place(cwd: str, places: Sequence[ThreadEnvironment] | None) -> str:
    """Where a thread works, for people. `cwd` is its directory on this machine."""
    if not places or [place.environment_id for place in places] == [LOCAL]:
        return cwd
    return ", ".join(f"{place.cwd} on {place.environment_id}" for place in places)
