"""`InteropTable`: which scenarios of which real clients passed on our server and on the real one, as `docs/interop.md`.

A test says which row it proves (`@pytest.mark.scenario(client=…, name=…)`) and by its parameter `server` on which
server; without one it compares both. Owns the rows and the file, which a run of all of them writes: `make interop`, or
`pytest -n 2 -m scenario tests/interop`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest
from scripts.install_peers import PEERS

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / "docs" / "interop.md"
PROPERTY: Final = "scenario"

Side: TypeAlias = Literal["ours", "codex"]
SIDES: Final[tuple[Side, ...]] = ("ours", "codex")
# What tests call the two servers.
_SIDES: Final[Mapping[str, Side]] = {"ours": "ours", "treadle": "ours", "codex": "codex", "real": "codex"}

Outcome: TypeAlias = Literal["failed", "xfailed", "passed", "skipped"]  # the first that a scenario has counts
_SEVERITY: Final[tuple[Outcome, ...]] = ("failed", "xfailed", "passed", "skipped")


@dataclass(frozen=True, slots=True)
class Client:
    """A program or library of others, and the codex that it is compared on. Both are names of peers."""

    peer: str
    codex: str
    what: str


CLIENTS: Final[Mapping[str, Client]] = {
    "codex TUI": Client("codex-npm", "codex-npm", "the terminal interface of codex, by `--remote`"),
    "codex-acp": Client("codex-acp", "codex-npm", "the ACP agent with which Zed and other editors run codex"),
    "hermes-agent": Client("hermes", "codex-npm", "the codex session of a chat assistant"),
    "ai-sdk-provider-codex-cli": Client("ai-sdk-codex", "codex-npm", "codex as a model of the AI SDK"),
    "TypeScript SDK": Client("codex-ts-sdk", "codex", "the official SDK; runs `codex exec`"),
    "Python SDK": Client("codex-sdk", "codex", "the official SDK; runs `codex app-server`"),
}
# The order of the rows; others come after them, by name.
SCENARIOS: Final = (
    "start-up",
    "message",
    "streaming",
    "command",
    "patch",
    "approval: accept",
    "approval: for the session",
    "approval: decline",
    "approval: cancel",
    "interrupt in text",
    "interrupt in a command",
    "steer",
    "resume picker",
    "fork",
    "archive",
    "review",
    "compact",
    "model switch",
    "two clients on one thread",
    "server restart in mid-session",
)

_INTRODUCTION: Final = """\
# Interop

Real clients of codex, and what they can do with `treadle app-server` and with the codex that they were written for.
Each row is a test in `tests/interop`: the client is installed from its registry and driven without a person, offline
on a mock model, once on our server and once on the real one. `make interop` runs them and writes this page: do not edit
it.

A client works with Treadle as it is: it is told to run `treadle` where it would run `codex` (for codex-acp that is
`CODEX_PATH=$(command -v treadle)`, for the terminal interface `codex --remote ws://…`).
"""


def scenario_of(client: str) -> Callable[[str], pytest.MarkDecorator]:
    """The mark of a client's tests; it is given the name of the scenario."""
    return lambda name: pytest.mark.scenario(client=client, name=name)


@dataclass(slots=True)
class Cell:
    """What became of a scenario on one server. Several tests may prove it."""

    outcome: Outcome | None = None
    reason: str = ""

    def add(self, outcome: Outcome, reason: str) -> None:
        if self.outcome is None or _SEVERITY.index(outcome) < _SEVERITY.index(self.outcome):
            self.outcome, self.reason = outcome, reason

    def __str__(self) -> str:
        match self.outcome:
            case "passed":
                return "yes"
            case "failed":
                return "**no**"
            case "xfailed":
                return f"**no**: {_plain(self.reason)}"
            case "skipped":
                return f"skipped: {_plain(self.reason)}"
            case None:
                return "not tried"


@dataclass(slots=True)
class Rows:
    """The cells by client, scenario and side."""

    cells: dict[tuple[str, str, Side], Cell] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        if (ended := outcome_of(report)) is None:
            return
        proved: list[Any] = [value for name, value in report.user_properties if name == PROPERTY]
        for client, scenario, sides in proved:
            for side in sides:
                self.cells.setdefault((client, scenario, side), Cell()).add(*ended)

    def text(self, day: datetime.date) -> str:
        clients = _ordered({client for client, _, _ in self.cells}, tuple(CLIENTS))
        lines = [_INTRODUCTION, "| client | version | scenarios | passed on ours | passed on the real codex | date |"]
        lines.append("|---|---|---|---|---|---|")
        lines += [self._summary(client, day) for client in clients]
        for client in clients:
            lines += ["", *self._section(client)]
        return "\n".join(lines) + "\n"

    def _scenarios(self, client: str) -> list[str]:
        return _ordered({scenario for of, scenario, _ in self.cells if of == client}, SCENARIOS)

    def _cell(self, client: str, scenario: str, side: Side) -> Cell:
        return self.cells.get((client, scenario, side), Cell())

    def _summary(self, client: str, day: datetime.date) -> str:
        scenarios = self._scenarios(client)
        passed = [sum(self._cell(client, name, side).outcome == "passed" for name in scenarios) for side in SIDES]
        version, codex = _versions(client)
        return f"| {client} | {version} | {len(scenarios)} | {passed[0]} | {passed[1]} (codex {codex}) | {day} |"

    def _section(self, client: str) -> list[str]:
        version, codex = _versions(client)
        about = f"{CLIENTS[client].what[:1].upper()}{CLIENTS[client].what[1:]}." if client in CLIENTS else ""
        rows = [
            f"| {name} | {self._cell(client, name, 'ours')} | {self._cell(client, name, 'codex')} |"
            for name in self._scenarios(client)
        ]
        return [f"## {client} {version}", "", about, "", f"| scenario | ours | codex {codex} |", "|---|---|---|", *rows]


class InteropTable:
    """The plugin. What a test proves is said where it is collected; rows are gathered where the run is controlled."""

    def __init__(self, config: pytest.Config, file: Path = FILE) -> None:
        self._config = config
        self._file = file
        self._rows = Rows()

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("scenario"):
                params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
                sides = sides_of(params)
                item.user_properties.append((PROPERTY, [mark.kwargs["client"], mark.kwargs["name"], list(sides)]))

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._rows.add(report)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        stopped = session.shouldfail or session.shouldstop
        if ended and not stopped and self._rows.cells and is_whole(self._config):
            self._file.write_text(self._rows.text(datetime.datetime.now(datetime.UTC).date()), encoding="utf-8")


def is_whole(config: pytest.Config) -> bool:
    """Whether this process controls a run of all interop tests, or at least of all scenarios."""
    options = vars(config.option)
    chosen = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "collectonly")
    if hasattr(config, "workerinput") or any(options.get(name) for name in chosen):
        return False
    folder = config.rootpath / "tests" / "interop"
    paths = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    return paths == [folder] and options.get("markexpr") in ("", "interop", "scenario")


def sides_of(params: Mapping[str, Any]) -> Sequence[Side]:
    """Where a test runs, by its parameters: `server`, or `side`, which begins with the server."""
    server = params.get("server") or next(iter(params.get("side", ())), None)
    return SIDES if server is None else (_SIDES[server],)


def outcome_of(report: pytest.TestReport) -> tuple[Outcome, str] | None:
    """What a phase of a test says of its scenario; None when it says nothing yet."""
    if report.failed:
        return "failed", ""
    if hasattr(report, "wasxfail"):
        return "xfailed", str(report.wasxfail).removeprefix("reason: ")
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return "skipped", str(reason).removeprefix("Skipped: ")
    return ("passed", "") if report.when == "call" else None


def _ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def _versions(client: str) -> tuple[str, str]:
    """Of the client, and of the codex that it is compared on."""
    known = CLIENTS.get(client, Client(client, "codex-npm", ""))
    client_version = PEERS[known.peer].version if known.peer in PEERS else ""
    return client_version, PEERS[known.codex].version


def _plain(reason: str) -> str:
    """On one line, without what would end a cell."""
    return reason.strip().splitlines()[0].replace("|", "/") if reason.strip() else "no reason given"
