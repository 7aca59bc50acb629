"""Every escape attempt of the table, under both mechanisms; and without a sandbox, where it has to succeed.

How to add one is told in `escape_table`. The attempts of one setting share one sandbox, since they do not disturb each
other: each has an outside of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from system.escapes import escape_program
from system.escapes.escape_ground import Planted
from system.escapes.escape_table import TABLE, Attempt, Mechanism, Setting
from treadle.execution import HOST, MINIMAL_PATHS, PathRule, Policy, Unusable, confine, handing

escape_program.rows()

DEADLINE = 100.0
PYTHON = os.path.realpath(sys.executable)
TESTS = str(Path(__file__).resolve().parents[2])
MECHANISMS: tuple[Mechanism, ...] = ("bubblewrap", "landlock")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
COMMAND = [PYTHON, "-I", "-S", "-B", escape_program.__file__]


@dataclass(frozen=True)
class Outcome:
    signs: list[str]
    errno: int
    error: str


@dataclass
class Runs:
    """One run per mechanism and setting, made when it is first asked for, for all the processes that run the tests."""

    folder: Path

    def outcome(self, attempt: Attempt, mechanism: Mechanism | None, setting: Setting | None) -> Outcome:
        name = f"{mechanism or 'no'}-{setting or 'sandbox'}"
        kept = self.folder / f"{name}.json"
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                attempts = [each for each in TABLE.values() if setting is None or setting in each.settings]
                outcomes = self._run(self.folder / name, attempts, mechanism, setting)
                kept.write_text(json.dumps({each: asdict(outcome) for each, outcome in outcomes.items()}))
        return Outcome(**json.loads(kept.read_text())[attempt.name])

    def _run(
        self, folder: Path, attempts: list[Attempt], mechanism: Mechanism | None, setting: Setting | None
    ) -> dict[str, Outcome]:
        with ExitStack() as stack:
            planted: dict[str, Planted] = {}
            for attempt in attempts:
                planted[attempt.name] = Planted(attempt, folder)
                stack.enter_context(planted[attempt.name].cleanup)
            argv, env = COMMAND, ENVIRONMENT
            if mechanism is not None and setting is not None:
                confined = confine(
                    policy_of(setting, folder / "work"),
                    argv=COMMAND,
                    arg0=None,
                    cwd=str(folder / "work"),
                    env=ENVIRONMENT,
                    tty=False,
                    mechanism=mechanism,
                )
                argv, env = handing(confined.argv, confined.handed), {}
            orders = [(name, asdict(one.ground)) for name, one in planted.items()]
            reports = reports_of(argv, env, folder / "work", json.dumps(orders))
            return {
                name: Outcome(one.signs(bytes.fromhex(report["told"])), report["errno"], report["error"])
                for name, one in planted.items()
                if (report := reports.get(name)) is not None
            }


def reports_of(argv: list[str], env: dict[str, str], cwd: Path, orders: str) -> dict[str, dict[str, Any]]:
    """What the program reported by attempt. What is missing was not made, and is an error in its own test."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, env=env, start_new_session=True, text=True
    ) as program:
        try:
            told, _ = program.communicate(orders, DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            told, _ = program.communicate()
    reports = [json.loads(line) for line in told.splitlines()]
    return {report["name"]: report for report in reports}


def policy_of(setting: Setting, work: Path) -> Policy:
    if setting == "closed":
        prefixes = (*MINIMAL_PATHS, sys.base_prefix, PYTHON, TESTS)
        readable = {os.path.realpath(path) for path in prefixes if os.path.exists(path)}
    else:
        readable = {"/"}
    writable = [] if setting == "readonly" else [PathRule(str(work), "write")]
    rules = [PathRule(path, "read") for path in readable] + writable
    return Policy(tuple(sorted(rules, key=lambda rule: rule.path)), network=setting == "online")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "escapes"
    folder.mkdir(exist_ok=True)
    return Runs(Path(os.path.realpath(folder)))


def cases() -> Iterator[object]:
    for mechanism in MECHANISMS:
        for attempt in TABLE.values():
            for setting in attempt.settings:
                yield pytest.param(mechanism, setting, attempt, id=f"{mechanism}-{setting}-{attempt.name}")


@pytest.mark.parametrize(("mechanism", "setting", "attempt"), list(cases()))
def test_it_stays_inside(runs: Runs, mechanism: Mechanism, setting: Setting, attempt: Attempt) -> None:
    require(mechanism, attempt)
    outcome = runs.outcome(attempt, mechanism, setting)
    if mechanism in attempt.open_on:
        if outcome.errno in attempt.may_lack:
            pytest.skip(f"this machine has no such thing: {outcome.error}")
        assert outcome.signs, "closed now: say so in docs/sandbox.md and in the table"
    else:
        assert not outcome.signs


@pytest.mark.parametrize("attempt", list(TABLE.values()), ids=list(TABLE))
def test_without_a_sandbox_it_succeeds(runs: Runs, attempt: Attempt) -> None:
    if attempt.control == "root" and os.geteuid() != 0:
        pytest.skip("only root can do this without a sandbox, so that there is nothing to compare with")
    outcome = runs.outcome(attempt, None, None)
    if not outcome.signs and outcome.errno in attempt.may_lack:
        pytest.skip(f"this machine has no such thing: {outcome.error}")
    assert outcome.signs, outcome.error


def require(mechanism: Mechanism, attempt: Attempt) -> None:
    found = HOST.bubblewrap()
    if mechanism == "bubblewrap" and isinstance(found, Unusable):
        pytest.skip(f"bubblewrap: {found.reason}")
    if mechanism == "landlock" and HOST.landlock() < 1:
        pytest.skip("landlock: this kernel does not offer it")
    if mechanism == "landlock" and HOST.landlock() < attempt.landlock:
        pytest.skip(f"landlock: it takes version {attempt.landlock}, and this kernel has {HOST.landlock()}")
