"""Fixtures of the tests in which the official SDK drives a server: ours, and the real one as the oracle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from scripts import install_peers

from interop.sdk.differences import Server
from interop.sdk.interpreter import Face, Play, SdkInterpreter

# The face is a matter of the SDK, and the real server is slow to start: as the oracle it is asked once, unless one
# wants to know whether a scenario itself is right.
SIDES: Final[list[tuple[Server, Face]]] = [("treadle", "sync"), ("treadle", "async"), ("real", "sync")]
if os.environ.get("TREADLE_SDK_EVERY_FACE") == "1":
    SIDES.append(("real", "async"))
NOT_INSTALLED = "PEER PROGRAM NOT INSTALLED"  # counted by the summary of the interop tests


@pytest.fixture(scope="session")
def sdk_library() -> Path:
    try:
        return install_peers.ensure(install_peers.PEERS["codex-sdk"])
    except install_peers.RegistryUnreachable as error:
        if os.environ.get("TREADLE_REQUIRE_PEERS") == "1":
            pytest.fail(f"{NOT_INSTALLED}: {error}")
        pytest.skip(f"{NOT_INSTALLED}: {error}")


@pytest.fixture(scope="session")
def sdk(sdk_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkInterpreter]:
    interpreter = SdkInterpreter(sdk_library, tmp_path_factory.mktemp("sdk"))
    yield interpreter
    interpreter.close()


@pytest.fixture(params=SIDES, ids="-".join)
def side(request: pytest.FixtureRequest) -> tuple[Server, Face]:
    pair: tuple[Server, Face] = request.param
    return pair


@pytest.fixture
def server(side: tuple[Server, Face]) -> Server:
    return side[0]


@pytest.fixture
def face(side: tuple[Server, Face]) -> Face:
    return side[1]


@pytest.fixture
def program(server: Server, request: pytest.FixtureRequest) -> Path:
    if server == "treadle":
        return Path(sys.executable).with_name("treadle")
    codex: Path = request.getfixturevalue("codex_bin")
    return codex


@pytest.fixture
def play(sdk: SdkInterpreter, program: Path, face: Face, tmp_path: Path) -> Iterator[Play]:
    """Run a scenario; its value is what it saw. Every notification must fit its model in the SDK.

    What went over the wire is printed, so a failed test shows it.
    """

    def run(scenario: str) -> Any:
        answer = sdk.play(scenario, program=program, folder=tmp_path, face=face)
        assert answer["unknown"] == []
        return answer["seen"]

    yield run
    wire = tmp_path / "wire.txt"
    if wire.exists():
        print(wire.read_text())
