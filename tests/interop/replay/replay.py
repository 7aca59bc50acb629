"""`replay`: play one scenario against a server and compare; the one function that the tests and the script call.

Owns the order of the steps, and the text that a person reads when something differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop.replay.compare import Finding, compare
from interop.replay.mask import events_of
from interop.replay.player import Played, play
from interop.replay.scenario import Places, Scenario


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of one scenario."""

    scenario: str
    findings: Sequence[Finding]
    played: Played = field(repr=False)

    def account(self, findings: Sequence[Finding]) -> str:
        """These findings, and where the play stopped if it did, for a person."""
        parts = [f"{self.scenario}: {len(findings)} differences (- recorded, + live)", *map(str, findings)]
        if self.played.stalled:
            parts.append(f"  the play stopped {self.played.stalled}")
        return "\n".join(parts)


async def replay(
    scenario: Scenario, command: Sequence[str], base: Path, skipped: frozenset[str] = frozenset()
) -> Replay:
    """Play and compare. `command` is a server without its `--listen`; `base` an empty folder."""
    played = await play(scenario, command, base, skipped)
    unordered = scenario.unordered_output
    findings = compare(events_of(played.recorded, None, unordered), events_of(played.lines, Places(base), unordered))
    return Replay(scenario.name, [*findings, *_model_findings(played)], played)


def _model_findings(played: Played) -> list[Finding]:
    label = f"the model was asked {played.model_requests} times"
    counts = {"unused replies": played.unused_replies, "unscripted requests": played.unscripted_requests}
    return [
        Finding("model", "(model)", label, "changed", path, recorded=0, live=count)
        for path, count in counts.items()
        if count
    ]
