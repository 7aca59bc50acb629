"""Fixtures of the tests that run the real agent programs: a model, a home that points to it, and the programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.peers import installed
from treadle.testing import EngineHome, EngineModel


@pytest.fixture
def engine_model() -> Iterator[EngineModel]:
    with EngineModel() as model:
        yield model


@pytest.fixture
def engine_home(engine_model: EngineModel, tmp_path: Path) -> EngineHome:
    return EngineHome(tmp_path / "engines", engine_model)


@pytest.fixture(scope="session")
def engine_program() -> Callable[[str], Path]:
    """The program of codex, claude, opencode or pi, by name; the test is skipped where it cannot be installed."""
    return installed
