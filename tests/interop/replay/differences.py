"""`differences.toml`: where our server differs from the recordings on purpose, each with its reason.

Owns reading the file and matching findings with it. An entry that names a scenario must be needed there, so that none
outlives its reason; a pattern of scenarios names in `seen_in` where it must be needed.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from interop.replay.compare import Finding

FILE: Final = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry: findings of this method, at this path, of these kinds, are meant to be."""

    id: str
    scenarios: Sequence[str]
    method: Sequence[str]
    path: Sequence[str]
    what: str
    reason: str
    kind: Sequence[str] = ("missing", "extra", "changed", "moved")
    label: str = "*"
    recorded: str = "*"
    seen_in: Sequence[str] = ()
    times: int | None = None
    sometimes: bool = False

    def covers(self, scenario: str, finding: Finding) -> bool:
        return (
            _any(scenario, self.scenarios)
            and _any(finding.method, self.method)
            and _any(finding.path, self.path)
            and finding.kind in self.kind
            and fnmatchcase(finding.label, self.label)
            and (self.recorded == "*" or fnmatchcase(str(finding.recorded), self.recorded))
        )

    @property
    def needed_in(self) -> list[str]:
        """The scenarios in which it must cover something."""
        return [name for name in (*self.scenarios, *self.seen_in) if not set(name) & set("*?[")]

    def is_stale(self, scenario: str, findings: Sequence[Finding]) -> bool:
        found = sum(self.covers(scenario, one) for one in findings)
        return found < (self.times or 1) and not self.sometimes


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """Recordings, or client messages of a scenario, that are not played. Without a script, against no server at all."""

    id: str
    scenario: str
    reason: str
    requests: Sequence[str] = ()
    scripted: bool = True


@dataclass(frozen=True, slots=True)
class Differences:
    differences: Sequence[Difference]
    out_of_scope: Sequence[OutOfScope]

    def skipped_requests(self, scenario: str, *, ours: bool = True) -> frozenset[str]:
        entries = [entry for entry in self.out_of_scope if entry.scenario == scenario and (ours or not entry.scripted)]
        return frozenset(name for entry in entries for name in entry.requests)

    def unexplained(self, scenario: str, findings: Sequence[Finding]) -> list[Finding]:
        used: Counter[str] = Counter()
        left: list[Finding] = []
        for one in findings:
            entry = next((entry for entry in self.differences if self._fits(entry, scenario, one, used)), None)
            if entry is None:
                left.append(one)
            else:
                used[entry.id] += 1
        return left

    def stale(self, scenario: str, findings: Sequence[Finding]) -> list[str]:
        """The entries that should be needed in a scenario and are not."""
        due = [entry for entry in self.differences if scenario in entry.needed_in]
        return [entry.id for entry in due if entry.is_stale(scenario, findings)]

    @staticmethod
    def _fits(entry: Difference, scenario: str, finding: Finding, used: Counter[str]) -> bool:
        return (entry.times is None or used[entry.id] < entry.times) and entry.covers(scenario, finding)


def load_differences(path: Path = FILE) -> Differences:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    differences = [_difference(table) for table in document.get("difference", [])]
    return Differences(differences, [OutOfScope(**table) for table in document.get("out_of_scope", [])])


def _difference(table: dict[str, Any]) -> Difference:
    lists = ("scenarios", "method", "path", "kind", "seen_in")
    values: dict[str, Any] = {
        key: [value] if key in lists and isinstance(value, str) else value for key, value in table.items()
    }
    return Difference(**values)


def _any(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
