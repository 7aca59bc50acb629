"""Every escape attempt of the table, under both mechanisms; and without a sandbox, where it has to succeed.

How to add one is told in `escape_table`. The attempts of one setting share one sandbox, since they do not disturb each
other: each has an outside of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from system.escapes import escape_program
from system.escapes.escape_ground import Planted
from system.escapes.escape_table import TABLE, Attempt, Mechanism, Setting
from treadle.execution.sandbox import Policy, Rule, confine
from treadle.execution.sandbox.host import HOST, Unusable
from treadle.execution.sandbox.policy import MINIMAL_PATHS

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
    """One run per mechanism and setting, made when it is first asked for."""

    folder: Path

    def __post_init__(self) -> None:
        self._done: dict[str, dict[str, Outcome]] = {}

    def outcome(self, attempt: Attempt, mechanism: Mechanism | None, setting: Setting | None) -> Outcome:
        name = f"{mechanism or 'no'}-{setting or 'sandbox'}"
        if name not in self._done:
            attempts = [each for each in TABLE.values() if setting is None or setting in each.settings]
            self._done[name] = self._run(self.folder / name, attempts, mechanism, setting)
        outcomes = self._done[name]
        assert attempt.name in outcomes, "the attempt was not made"
        return outcomes[attempt.name]

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
                argv, env = list(confined.argv), dict(confined.env)
            orders = [(name, asdict(one.ground)) for name, one in planted.items()]
            done = subprocess.run(
                argv,
                input=json.dumps(orders).encode(),
                stdout=subprocess.PIPE,
                cwd=folder / "work",
                env=env,
                start_new_session=True,
                timeout=DEADLINE,
                check=True,
            )
            reports = [json.loads(line) for line in done.stdout.splitlines()]
            return {
                report["name"]: Outcome(
                    planted[report["name"]].signs(bytes.fromhex(report["told"])), report["errno"], report["error"]
                )
                for report in reports
            }


def policy_of(setting: Setting, work: Path) -> Policy:
    if setting == "closed":
        prefixes = (*MINIMAL_PATHS, sys.base_prefix, PYTHON, TESTS)
        readable = {os.path.realpath(path) for path in prefixes if os.path.exists(path)}
    else:
        readable = {"/"}
    rules = [Rule(path, "read") for path in readable] + [Rule(str(work), "write")]
    return Policy(tuple(sorted(rules, key=lambda rule: rule.path)), network=setting == "online")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(Path(os.path.realpath(tmp_path_factory.mktemp("escapes"))))


def cases() -> Iterator[object]:
    for mechanism in MECHANISMS:
        for attempt in TABLE.values():
            for setting in attempt.settings:
                group = pytest.mark.xdist_group(f"escapes-{mechanism}")
                yield pytest.param(mechanism, setting, attempt, id=f"{mechanism}-{setting}-{attempt.name}", marks=group)


@pytest.mark.parametrize(("mechanism", "setting", "attempt"), list(cases()))
def test_it_stays_inside(runs: Runs, mechanism: Mechanism, setting: Setting, attempt: Attempt) -> None:
    require(mechanism)
    outcome = runs.outcome(attempt, mechanism, setting)
    if mechanism in attempt.open_on:
        if outcome.errno in attempt.may_lack:
            pytest.skip(f"this machine has no such thing: {outcome.error}")
        assert outcome.signs, "closed now: say so in docs/sandbox.md and in the table"
    else:
        assert not outcome.signs


@pytest.mark.xdist_group("escapes-control")
@pytest.mark.parametrize("attempt", list(TABLE.values()), ids=list(TABLE))
def test_without_a_sandbox_it_succeeds(runs: Runs, attempt: Attempt) -> None:
    if attempt.control == "root" and os.geteuid() != 0:
        pytest.skip("only root can do this without a sandbox, so that there is nothing to compare with")
    outcome = runs.outcome(attempt, None, None)
    if not outcome.signs and outcome.errno in attempt.may_lack:
        pytest.skip(f"this machine has no such thing: {outcome.error}")
    assert outcome.signs, outcome.error


def require(mechanism: Mechanism) -> None:
    found = HOST.bubblewrap()
    if mechanism == "bubblewrap" and isinstance(found, Unusable):
        pytest.skip(f"bubblewrap: {found.reason}")
    if mechanism == "landlock" and HOST.landlock() < 1:
        pytest.skip("landlock: this kernel does not offer it")
