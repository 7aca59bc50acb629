"""`treadle doctor`: checks offline whether Treadle and the installed engines work here."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import click
import msgspec

from treadle.cli.doctor_checks import Check, own_checks
from treadle.cli.doctor_report import DoctorView, LiveReport, PlainReport
from treadle.cli.doctor_trial import Trial, trial_environment
from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.people import completing
from treadle.cli.problem import Problem
from treadle.cli.server_process import start_logging
from treadle.cli.streams import write
from treadle.cli.terminal import is_terminal
from treadle.runners.engine_registry import engine_names
from treadle.runners.status import EngineStatus, engine_statuses

OWN: Final = "treadle itself"
# Engines at a time: each is a program that keeps a core busy while it starts.
AT_ONCE: Final = 2
_MORE: Final = """\
Every installed engine is asked one question through our runner, in a home of its own and with a model of ours on this
machine: your logins, settings and sessions are not touched, and nothing is sent anywhere."""


@people_command(
    "doctor",
    more=_MORE,
    exit_codes={0: "all that is installed works", 1: "something does not", 2: "wrong usage", 130: "interrupted"},
    examples=("treadle doctor", "treadle doctor codex claude", "treadle doctor --json | jq '.ok'"),
)
@click.argument("engines", nargs=-1, metavar="[ENGINE]...", shell_complete=completing(engine_names))
@click.option("--json", "as_json", is_flag=True, help="what was found, as one JSON object")
def command(engines: tuple[str, ...], as_json: bool, config_overrides: tuple[str, ...]) -> int:
    start_logging("critical")
    unknown = [name for name in engines if name not in engine_names()]
    if config_overrides and engines:
        raise Problem("engines are tried out with settings of ours: leave -c out", code=REFUSED)
    if unknown:
        known = ", ".join(engine_names())
        raise Problem(f"there is no engine {unknown[0]!a}", why=f"there are {known}", do="treadle doctor", code=REFUSED)
    return asyncio.run(_examine(engines, config_overrides, as_json=as_json))


async def _examine(engines: Sequence[str], overrides: Sequence[str], *, as_json: bool) -> int:
    names = list(dict.fromkeys(engines)) or engine_names()
    subjects = names if engines else [OWN, *names]
    found: dict[str, list[Check]] = {subject: [] for subject in subjects}
    began = time.monotonic()
    with _view(subjects, quiet=as_json) as view:

        def tell(subject: str, check: Check) -> None:
            found[subject].append(check)
            view.told(subject, check)

        if not engines:
            view.began(OWN)
            await _examine_ourselves(overrides, tell)
            view.ended(OWN)
        # Before the trial environment is set up: it is about the user's own home.
        statuses = await engine_statuses(names, ask_version=False)
        with trial_environment() as trial:
            await _try_out(trial, statuses, tell, view)
        view.summary(_summary(found), time.monotonic() - began)
    failed = any(check.verdict == "failed" for checks in found.values() for check in checks)
    if as_json:
        document = {"ok": not failed, "subjects": found}
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    return FAILED if failed else 0


async def _examine_ourselves(overrides: Sequence[str], tell: Callable[[str, Check], None]) -> None:
    checks = own_checks(overrides)
    while (check := await asyncio.to_thread(next, checks, None)) is not None:
        tell(OWN, check)


async def _try_out(
    trial: Trial, statuses: list[EngineStatus], tell: Callable[[str, Check], None], view: DoctorView
) -> None:
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
