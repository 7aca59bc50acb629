"""The official SDK and ours play the same scenarios: what they see and what they send is the same, field by field."""

from __future__ import annotations

import ast
import json
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest

from interop.sdk.conftest import SIDES
from interop.sdk.departures import CHANCES, DEPARTURES, NO_SERVER, ONLY_OFFICIAL, Departure, Record
from interop.sdk.differences import Server
from interop.sdk.interpreter import Face, ScenarioFailed
from interop.sdk.package import OFFICIAL, OURS, Package
from interop.sdk.recordings import Recordings

pytestmark = pytest.mark.interop


def _scenarios() -> list[str]:
    """All that there are, from the text of the files: to import them takes the official SDK."""
    files = sorted(Path(__file__).with_name("scenarios").glob("*.py"))
    return [
        f"{file.stem}.{node.name}"
        for file in files
        if file.stem not in NO_SERVER
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


def _sides(scenario: str) -> list[tuple[Server, Face]]:
    if scenario == "server.overloaded":  # the real server leaves some requests without an answer
        return [side for side in SIDES if side[0] == "treadle"]
    if scenario == "server.browser_logins":  # has both faces in itself
        return [side for side in SIDES if side[1] == "sync"]
    return SIDES


SCENARIOS: Final = _scenarios()
PLAYS: Final = [
    (scenario, *side) for scenario in SCENARIOS if scenario not in ONLY_OFFICIAL for side in _sides(scenario)
]


def _record(recordings: Recordings, package: Package, scenario: str, server: Server, face: Face) -> Record:
    recording = recordings.of(package, scenario, server, face)
    print(f"--- {package}\n{recording.wire}")
    return {"seen": recording.seen, "sent": recording.sent, "unknown": recording.unknown}


def _settled(record: Record, scenario: str, server: Server) -> Record:
    """Without what is left to chance, which must be one of the values that it can be."""
    seen: Any = record["seen"]
    for chance in CHANCES.get(scenario, ()):
        value = seen if chance.member is None else seen[chance.member]
        assert value in chance.allowed(server)
        seen = "CHANCE" if chance.member is None else {**seen, chance.member: "CHANCE"}
    return {**record, "seen": seen}


@pytest.mark.parametrize(("scenario", "server", "face"), PLAYS, ids=["-".join(play) for play in PLAYS])
def test_both_see_and_send_the_same(recordings: Recordings, scenario: str, server: Server, face: Face) -> None:
    official, ours = (
        _settled(_record(recordings, package, scenario, server, face), scenario, server) for package in (OFFICIAL, OURS)
    )
    departures = [departure for departure in DEPARTURES if departure.concerns(scenario)]
    for departure in departures:
        assert departure.occurs(official, ours) or not departure.scenarios, f"no longer true: {departure.reason}"
    expected = reduce(lambda record, departure: departure.official(record), departures, official)
    found = reduce(lambda record, departure: departure.ours(record), departures, ours)
    assert _sorted(found) == _sorted(expected)


def _sorted(record: Record) -> Record:
    """Turns that run at the same time are asked for in any order."""
    return {**record, "sent": sorted(record["sent"], key=lambda request: json.dumps(request, sort_keys=True))}


@pytest.mark.parametrize("departure", DEPARTURES, ids=lambda departure: departure.reason)
def test_a_departure_occurs_where_it_is_said_to(recordings: Recordings, departure: Departure) -> None:
    official, ours = (_record(recordings, package, departure.proof, "real", "sync") for package in (OFFICIAL, OURS))
    assert departure.concerns(departure.proof)
    assert departure.occurs(official, ours)


def test_every_table_is_about_scenarios_that_there_are() -> None:
    named = {name for departure in DEPARTURES for name in (departure.proof, *departure.scenarios)}
    assert named | CHANCES.keys() | ONLY_OFFICIAL.keys() <= set(SCENARIOS)


@pytest.mark.parametrize("scenario", ONLY_OFFICIAL)
def test_what_only_the_official_sdk_can_play(recordings: Recordings, scenario: str) -> None:
    with pytest.raises(ScenarioFailed, match=r"No module named 'treadle\._goal'"):
        recordings.of(OURS, scenario, "treadle", "sync")
