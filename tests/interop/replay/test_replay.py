"""The recorded clients against our server: every message is as recorded, or `differences.toml` says why not.

To look closer, or to play against the real program, use `python -m interop.replay` (see its docstring).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from interop.replay.compare import compare
from interop.replay.differences import load_differences
from interop.replay.mask import events_of
from interop.replay.overload import BURST, RECORDING, burst
from interop.replay.recording import RECORDINGS, Line, load
from interop.replay.replay import replay
from interop.replay.scenario import load_scenarios
from schema_proof import heard

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SCENARIOS = load_scenarios()
DIFFERENCES = load_differences()
TREADLE = [sys.executable, "-m", "treadle", "app-server"]


def _prove(lines: Sequence[Line]) -> None:
    """What our server has said here, against the schema too."""
    methods: dict[tuple[str, object], str] = {}
    for line in lines:
        message = line.message
        if line.from_client:
            if "method" in message and isinstance(message.get("id"), int | str):
                methods[line.conn, message["id"]] = message["method"]
        else:
            heard(message, None if "method" in message else methods.get((line.conn, message.get("id"))))


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_recorded_client_sees_what_it_saw(name: str, tmp_path: Path) -> None:
    outcome = await replay(SCENARIOS[name], TREADLE, tmp_path, DIFFERENCES.skipped_requests(name))
    unexplained = DIFFERENCES.unexplained(name, outcome.findings)
    assert not unexplained, outcome.account(unexplained)
    assert outcome.played.stalled is None, outcome.account([])
    assert not DIFFERENCES.stale(name, outcome.findings), "no longer needed in this scenario: take them out"
    _prove(outcome.played.lines)


async def test_a_flooded_server_refuses_as_recorded(tmp_path: Path) -> None:
    answers = await burst(TREADLE, tmp_path)
    assert len(answers) == BURST
    refused = [line for line in answers if "error" in line.message]
    assert refused, "the flood was no flood: the server answered everything"
    findings = [
        finding for line in refused for finding in compare(events_of(load(RECORDING), None), events_of([line], None))
    ]
    assert not DIFFERENCES.unexplained(RECORDING, findings)
    assert not DIFFERENCES.stale(RECORDING, findings)


def test_every_recording_is_played_or_declared_out_of_scope() -> None:
    recordings = {path.stem for path in RECORDINGS.glob("*.jsonl")}
    played = {name for scenario in SCENARIOS.values() for name in scenario.recordings} | {RECORDING}
    declared = {entry.scenario for entry in DIFFERENCES.out_of_scope if not entry.requests}
    assert played | declared == recordings
    assert not played & declared


def test_every_difference_names_a_scenario_in_which_it_is_needed() -> None:
    known = {*SCENARIOS, RECORDING}
    assert [entry.id for entry in DIFFERENCES.differences if not entry.needed_in] == []
    assert {name for entry in DIFFERENCES.differences for name in entry.needed_in} <= known


def test_every_difference_has_a_reason_and_an_id_of_its_own() -> None:
    reasons = [(entry.id, entry.reason) for entry in DIFFERENCES.differences]
    reasons += [(entry.id, entry.reason) for entry in DIFFERENCES.out_of_scope]
    assert len(dict(reasons)) == len(reasons)
    assert [name for name, reason in reasons if len(reason.split()) < 5] == []
