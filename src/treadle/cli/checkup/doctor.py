"""`treadle doctor`: checks whether Treadle and the installed engines work here; offline, unless asked otherwise."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO, TypeAlias

import click

from treadle.cli.checkup.checks import (
    MARKS,
    Check,
    check_database,
    check_git,
    check_home,
    check_providers,
    check_python,
    check_settings,
    check_store,
)
from treadle.cli.checkup.mcp_checks import check_mcp_servers, configured_servers
from treadle.cli.checkup.trials import check_sandbox, trial_environment
from treadle.cli.completion import completing
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.run.engines import STYLES
from treadle.cli.streams import FAILED, REFUSED, write, write_json
from treadle.cli.terminal import LiveArea, is_terminal, spinner
from treadle.cli.user_commands import user_command
from treadle.config import ConfigError, find_home, load_config
from treadle.pages.figures import took
from treadle.pages.safe_text import printable_line
from treadle.runners.engine_registry import engine_names
from treadle.runners.progress import elapsed
from treadle.runners.status import EngineStatus, engine_statuses

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

OWN: Final = "treadle itself"
SANDBOX: Final = "sandbox"
PROVIDERS: Final = "providers"
MCP_SERVERS: Final = "MCP servers"
Report: TypeAlias = Callable[[str, Check], None]
# Engines at a time: each is a program that keeps a core busy while it starts.
AT_ONCE: Final = 2
_MORE: Final = """\
Every installed engine is asked one question through our runner, in a home of its own and with a model of ours on this
machine: your logins, settings and sessions are not touched, and nothing is sent anywhere. Each MCP server that is a
program of this machine, or listens here, is started or asked for its tools. With --online, MCP servers elsewhere are
asked too, and each provider that you have configured is asked one short question, which costs a few tokens."""


@user_command(
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
@click.option(
    "--online",
    "--ask",
    "online",
    is_flag=True,
    help="ask MCP servers elsewhere, and each configured provider; costs a few tokens",
)
@click.option("--no-engines", is_flag=True, help="look at Treadle itself only, which takes a second")
@click.option("--json", "as_json", is_flag=True, help="what was found, as one JSON object")
def command(
    engines: tuple[str, ...], online: bool, no_engines: bool, as_json: bool, config_overrides: tuple[str, ...]
) -> int:
    start_logging("critical")
    unknown = [name for name in engines if name not in engine_names()]
    if unknown:
        known = ", ".join(engine_names())
        raise Problem(f"there is no engine {unknown[0]!a}", why=f"there are {known}", do="treadle doctor", code=REFUSED)
    if engines and (online or no_engines or config_overrides):
        which = "-c" if config_overrides else "--online" if online else "--no-engines"
        why = "engines that are named are tried out alone, with settings of ours"
        raise Problem(f"leave {which} out", why=why, do=f"treadle doctor {' '.join(engines)}", code=REFUSED)
    return asyncio.run(_examine(engines, config_overrides, online=online, no_engines=no_engines, as_json=as_json))


async def _examine(
    engines: Sequence[str], overrides: Sequence[str], *, online: bool, no_engines: bool, as_json: bool
) -> int:
    names = [] if no_engines else list(dict.fromkeys(engines)) or engine_names()
    servers = [] if engines else configured_servers(overrides)
    subjects = names if engines else [OWN, SANDBOX, PROVIDERS, *([MCP_SERVERS] if servers else []), *names]
    found: dict[str, list[Check]] = {subject: [] for subject in subjects}
    began = time.monotonic()
    view: DoctorView
    if as_json:
        view = PlainReport(subjects, lambda text: None)
    elif is_terminal(sys.stdout):
        view = LiveReport(subjects, sys.stdout)
    else:
        view = PlainReport(subjects, lambda text: write(sys.stdout, text))
    with view:

        def report(subject: str, check: Check) -> None:
            found[subject].append(check)
            view.found(subject, check)

        if not engines:
            await _examine_ourselves(overrides, report, view, online=online)
        if servers:
            view.began(MCP_SERVERS)
            for check in await check_mcp_servers(servers, online=online):
                report(MCP_SERVERS, check)
            view.ended(MCP_SERVERS)
        # Before the trial environment is set up: it is about the user's own home.
        statuses = await engine_statuses(names, ask_version=False) if names else []
        if statuses:
            with trial_environment() as trial:
                places = asyncio.Semaphore(AT_ONCE)

                async def one(status: EngineStatus) -> None:
                    async with places:
                        view.began(status.name)
                        async for tried in trial.checks(status):
                            report(status.name, tried)
                        view.ended(status.name)

                async with asyncio.TaskGroup() as group:
                    for status in statuses:
                        group.create_task(one(status))
        failed = [subject for subject, checks in found.items() if any(check.verdict == "failed" for check in checks)]
        summary = f"does not work: {', '.join(failed)}" if failed else "all that is installed works"
        view.summary(summary, time.monotonic() - began)
    if as_json:
        write_json({"ok": not failed, "subjects": found})
    return FAILED if failed else 0


async def _examine_ourselves(overrides: Sequence[str], report: Report, view: DoctorView, *, online: bool) -> None:
    view.began(OWN)
    report(OWN, check_python())
    for check in await asyncio.to_thread(lambda: list(check_home())):
        report(OWN, check)
    report(OWN, await asyncio.to_thread(check_settings, overrides))
    with suppress(ConfigError):  # what is wrong with the home or the settings was reported
        location = (await asyncio.to_thread(load_config, find_home(os.environ), overrides=overrides)).config.store
        home = find_home(os.environ)
        report(OWN, await check_store(location) if location else await asyncio.to_thread(check_database, home))
    report(OWN, check_git())
    view.ended(OWN)
    view.began(SANDBOX)
    report(SANDBOX, await asyncio.to_thread(check_sandbox))
    view.ended(SANDBOX)
    view.began(PROVIDERS)
    async for check in check_providers(overrides, online=online):
        report(PROVIDERS, check)
    view.ended(PROVIDERS)


# --- how findings are shown ---

_INDENT: Final = "      "


class DoctorView(Protocol):
    """Shows the findings as they come in: blocks of lines in a fixed order, each once it is complete. Used in a `with`
    block."""

    def __enter__(self) -> DoctorView: ...
    def __exit__(self, *_: object) -> None: ...

    def began(self, subject: str) -> None:
        """The subject is being looked at."""

    def found(self, subject: str, check: Check) -> None:
        """A check of the subject is done."""

    def ended(self, subject: str) -> None:
        """All checks of the subject are done."""

    def summary(self, text: str, seconds: float) -> None:
        """All subjects are done."""


def check_lines(check: Check) -> list[str]:
    """A check as plain lines; the first one has the mark."""
    lines = [f"  {MARKS[check.verdict]} {printable_line(check.what)}{took(check.seconds or 0)}"]
    lines += [f"{_INDENT}| {printable_line(line)}" for line in check.detail]
    if check.advice:
        lines.append(f"{_INDENT}{printable_line(check.advice)}")
    return lines


class _Blocks:
    """The order of blocks: a block can be shown when it is complete and all before it are shown."""

    def __init__(self, subjects: Sequence[str]) -> None:
        self._waiting = list(subjects)
        self._complete: set[str] = set()
        self.checks: dict[str, list[Check]] = {subject: [] for subject in subjects}

    def ended(self, subject: str) -> list[str]:
        self._complete.add(subject)
        ready: list[str] = []
        while self._waiting and self._waiting[0] in self._complete:
            ready.append(self._waiting.pop(0))
        return ready


class PlainReport:
    """A view for pipes: plain lines."""

    def __init__(self, subjects: Sequence[str], write: Callable[[str], None]) -> None:
        self._blocks = _Blocks(subjects)
        self._write = write

    def __enter__(self) -> PlainReport:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def began(self, subject: str) -> None:
        pass

    def found(self, subject: str, check: Check) -> None:
        self._blocks.checks[subject].append(check)

    def ended(self, subject: str) -> None:
        for ready in self._blocks.ended(subject):
            lines = [line for check in self._blocks.checks[ready] for line in check_lines(check)]
            self._write("".join(f"{line}\n" for line in [ready, *lines]))

    def summary(self, text: str, seconds: float) -> None:
        self._write(f"{text}{took(seconds)}\n")


class LiveReport:
    """A view for terminals: checks still in progress are drawn below, with the elapsed time."""

    def __init__(self, subjects: Sequence[str], stream: TextIO) -> None:
        self._blocks = _Blocks(subjects)
        self._stream = stream
        self._since: dict[str, float] = {}
        self._area: LiveArea | None = None

    def __enter__(self) -> LiveReport:
        self._area = LiveArea(self._stream, self._draw)
        return self

    def __exit__(self, *_: object) -> None:
        if self._area is not None:
            self._area.close()

    def began(self, subject: str) -> None:
        self._since[subject] = time.monotonic()

    def found(self, subject: str, check: Check) -> None:
        self._blocks.checks[subject].append(check)

    def ended(self, subject: str) -> None:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        assert self._area is not None
        self._since.pop(subject, None)
        for ready in self._blocks.ended(subject):
            checks = self._blocks.checks[ready]
            self._area.print(Text(ready, style="bold"), *(line for check in checks for line in styled_check(check)))

    def summary(self, text: str, seconds: float) -> None:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        assert self._area is not None
        self._area.print(Text(f"{text}{took(seconds)}", style="bold"))

    def _draw(self, width: int, height: int) -> list[Text]:
        from rich.text import Text  # rich takes 60 ms: loaded when something is drawn

        now = time.monotonic()
        return [
            Text(f"{spinner(now)} {name} · {elapsed(now - since)}", style="dim") for name, since in self._since.items()
        ]


def styled_check(check: Check) -> list[RenderableType]:
    """A check for a terminal: what is wrapped stays below what it belongs to."""
    # rich takes 60 ms: loaded when something is drawn
    from rich.text import Text

    from treadle.cli.turn.rich_blocks import Hanging

    mark = MARKS[check.verdict]
    first, *rest = check_lines(check)
    front = Text(first[:4])
    front.stylize(STYLES[mark], 2, 3)
    style = "yellow" if check.verdict in ("failed", "warning") else "dim"
    head = Hanging(front, Text(first[4:], style="dim" if check.verdict == "skipped" else ""))
    return [head, *(Hanging(Text(_INDENT), Text(more.removeprefix(_INDENT), style=style)) for more in rest)]
