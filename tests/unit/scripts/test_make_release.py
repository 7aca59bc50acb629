"""What keeps a release from being made."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

import treadle

SCRIPT = Path(treadle.__file__).parents[2] / "scripts" / "make_release.py"
READY = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-11-16\n\n### Added\n- A thing.\n"
Problems = Callable[..., list[str]]


@pytest.fixture
def problems() -> Problems:
    spec = importlib.util.spec_from_file_location("make_release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Problems = module.problems
    return found


def test_what_is_ready(problems: Problems) -> None:
    assert problems("0.2.0", READY, tags=["v0.1.0"], changed=[]) == []
    assert problems("0.2.0", READY.replace("## Unreleased\n\n", ""), tags=[], changed=[]) == []


def test_what_is_not(problems: Problems) -> None:
    assert problems("0.2.0", READY, tags=["v0.2.0"], changed=[])[0].startswith("v0.2.0 has been released")
    assert problems("0.3.0", READY, tags=[], changed=[])[0].startswith("CHANGELOG.md has no section `## 0.3.0 - DATE`")
    more = READY.replace("## Unreleased\n", "## Unreleased\n- Another.\n")
    assert problems("0.2.0", more, tags=[], changed=[]) == [
        "CHANGELOG.md still has something under Unreleased: it belongs to 0.2.0"
    ]
    assert problems("0.2.0", READY, tags=[], changed=[" M README.md", "?? x"]) == [
        "not everything is committed: README.md, x"
    ]
