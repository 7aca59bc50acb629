"""`treadle doctor`: checks whether Treadle and the installed engines work here; offline, unless told otherwise."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeAlias

import click
import msgspec

from treadle.cli.checkup.check import Check, Verdict
from treadle.cli.checkup.database_check import check_database
from treadle.cli.checkup.doctor_report import DoctorView, LiveReport, PlainReport
from treadle.cli.checkup.doctor_trial import Trial, trial_environment
from treadle.cli.checkup.machine_checks import check_git, check_home, check_python, check_settings
from treadle.cli.checkup.provider_checks import check_providers
from treadle.cli.checkup.sandbox_check import check_sandbox
from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.people import completing
from treadle.cli.problem import Problem
from treadle.cli.server_process import start_logging
from treadle.cli.streams import write
from treadle.cli.terminal import is_terminal
from treadle.config import ConfigError, ModelUnusable, find_home, load_config
from treadle.runners.engine_registry import engine_names
from treadle.runners.status import EngineStatus, engine_statuses

OWN: Final = "treadle itself"
SANDBOX: Final = "sandbox"
PROVIDERS: Final = "providers"
Tell: TypeAlias = Callable[[str, Check], None]
# Engines at a time: each is a program that keeps a core busy while it starts.
AT_ONCE: Final = 2
_MORE: Final = """\
Every installed engine is asked one question through our runner, in a home of its own and with a model of ours on this
machine: your logins, settings and sessions are not touched, and nothing is sent anywhere. With --online, each provider
that you have configured is asked one short question too, which costs a few tokens."""


@people_command(
    "doctor",
    more=_MORE,
    exit_codes={0: "all that is installed works", 1: "something does not", 2: "wrong usage", 130: "interrupted"},
    examples=(
        "treadle doctor",
        "treadle doctor --online --no-engines",
        "treadle doctor codex claude",
        "treadle doctor --json | jq '.ok'",
    ),
)
@click.argument("engines", nargs=-1, metavar="[ENGINE]...", shell_complete=completing(engine_names))
@click.option("--online", "--ask", "online", is_flag=True, help="ask each configured provider; costs a few tokens")
@click.option("--no-engines", is_flag=True, help="look at Treadle itself only, which takes a second")
@click.option("--json", "as_json", is_flag=True, help="what was found, as one JSON object")
def command(
    engines: tuple[str, ...], online: bool, no_engines: bool, as_json: bool, config_overrides: tuple[str, ...]
) -> int:
    start_logging("critical")
    _check_words(engines, online=online, no_engines=no_engines, has_overrides=bool(config_overrides))
    return asyncio.run(_examine(engines, config_overrides, online=online, no_engines=no_engines, as_json=as_json))


def _check_words(engines: Sequence[str], *, online: bool, no_engines: bool, has_overrides: bool) -> None:
    unknown = [name for name in engines if name not in engine_names()]
    if unknown:
        known = ", ".join(engine_names())
        raise Problem(f"there is no engine {unknown[0]!a}", why=f"there are {known}", do="treadle doctor", code=REFUSED)
    if engines and (online or no_engines or has_overrides):
        which = "-c" if has_overrides else "--online" if online else "--no-engines"
        why = "engines that are named are tried out alone, with settings of ours"
        raise Problem(f"leave {which} out", why=why, do=f"treadle doctor {' '.join(engines)}", code=REFUSED)


async def _examine(
    engines: Sequence[str], overrides: Sequence[str], *, online: bool, no_engines: bool, as_json: bool
) -> int:
    names = [] if no_engines else list(dict.fromkeys(engines)) or engine_names()
    subjects = names if engines else [OWN, SANDBOX, PROVIDERS, *names]
    found: dict[str, list[Check]] = {subject: [] for subject in subjects}
    began = time.monotonic()
    with _view(subjects, quiet=as_json) as view:

        def tell(subject: str, check: Check) -> None:
            found[subject].append(check)
            view.told(subject, check)

        if not engines:
            await _examine_ourselves(overrides, tell, view, online=online)
        # Before the trial environment is set up: it is about the user's own home.
        statuses = await engine_statuses(names, ask_version=False) if names else []
        if statuses:
            with trial_environment() as trial:
                await _try_out(trial, statuses, tell, view)
        view.summary(_summary(found), time.monotonic() - began)
    failed = any(check.verdict == "failed" for checks in found.values() for check in checks)
    if as_json:
        document = {"ok": not failed, "subjects": found}
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    return FAILED if failed else 0


async def _examine_ourselves(overrides: Sequence[str], tell: Tell, view: DoctorView, *, online: bool) -> None:
    view.began(OWN)
    for look in (lambda: [check_python()], check_home, lambda: [check_settings(overrides)], _database):
        for check in await asyncio.to_thread(list, look()):
            tell(OWN, check)
    tell(OWN, check_git())
    view.ended(OWN)
    view.began(SANDBOX)
    tell(SANDBOX, await asyncio.to_thread(check_sandbox))
    view.ended(SANDBOX)
    view.began(PROVIDERS)
    async for check in _providers(overrides, online=online):
        tell(PROVIDERS, check)
    view.ended(PROVIDERS)


def _database() -> list[Check]:
    try:
        return [check_database(find_home(os.environ))]
    except ConfigError:
        return []  # what is wrong with the home was said


async def _providers(overrides: Sequence[str], *, online: bool) -> AsyncIterator[Check]:
    try:
        config = load_config(find_home(os.environ), overrides=overrides).config
    except ConfigError as error:
        verdict: Verdict = "failed" if isinstance(error, ModelUnusable) else "skipped"
        yield Check("which provider is used cannot be told", verdict, "correct the settings: treadle config check")
        return
    async for check in check_providers(config, online=online):
        yield check


async def _try_out(trial: Trial, statuses: list[EngineStatus], tell: Tell, view: DoctorView) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(status: EngineStatus) -> None:
        async with places:
            view.began(status.name)
            async for check in trial.checks(status):
                tell(status.name, check)
            view.ended(status.name)

    async with asyncio.TaskGroup() as group:
        for status in statuses:
            group.create_task(one(status))


def _summary(found: dict[str, list[Check]]) -> str:
    failed = [subject for subject, checks in found.items() if any(check.verdict == "failed" for check in checks)]
    return f"does not work: {', '.join(failed)}" if failed else "all that is installed works"


def _view(subjects: list[str], *, quiet: bool) -> DoctorView:
    if quiet:
        return PlainReport(subjects, lambda text: None)
    if is_terminal(sys.stdout):
        return LiveReport(subjects, sys.stdout)
    return PlainReport(subjects, lambda text: write(sys.stdout, text))
