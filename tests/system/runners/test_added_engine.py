"""The engine of docs/runners.md, added to an installation the way the page says."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path

import pytest

from system.runners.fake_engine import first_lines
from treadle.runners import (
    ActionEvent,
    CompletedEvent,
    ResumeToken,
    StartedEvent,
    UnknownEngine,
    engine_names,
    find_engine,
    make_runner,
)

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parents[3] / "docs" / "runners.md"
PROGRAM = f"""{first_lines()}
import json, sys
prompt = sys.stdin.read()
if prompt == "fail":
    sys.exit(4)
session = sys.argv[sys.argv.index("--session") + 1] if "--session" in sys.argv else "bird-1"
print(json.dumps({{"session": session}}))
print(json.dumps({{"tool": "peck"}}))
print(json.dumps({{"text": prompt}}))
"""


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (code,) = re.findall(r"^```python\n(# parrot\.py\n.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(code.splitlines()) < 100
    (point,) = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"', PAGE.read_text(), re.MULTILINE)
    site = tmp_path / "site"
    (site / "parrot-1.0.dist-info").mkdir(parents=True)
    (site / "parrot.py").write_text(code)
    (site / "parrot-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (site / "parrot-1.0.dist-info" / "entry_points.txt").write_text(f"[{point[0]}]\n{point[1]} = {point[2]}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    importlib.invalidate_caches()
    program = tmp_path / "parrot"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return program


async def test_it_runs_like_any_other(parrot: Path) -> None:
    assert "parrot" in engine_names()
    runner = make_runner("parrot", str(parrot))
    async with asyncio.timeout(60):
        events = [event async for event in runner.run("hello")]
        again = [event async for event in runner.run("again", ResumeToken("parrot", "bird-7"))]
        failed = [event async for event in runner.run("fail")]
    token = ResumeToken("parrot", "bird-1")
    assert [type(event) for event in events] == [StartedEvent, ActionEvent, CompletedEvent]
    assert events[-1] == CompletedEvent("parrot", True, "hello", token)
    assert again[0] == StartedEvent("parrot", ResumeToken("parrot", "bird-7"))
    assert failed[-1] == CompletedEvent("parrot", False, "", error="parrot failed (rc=4).")
    assert runner.extract_resume(runner.format_resume(token)) == token


async def test_one_that_cannot_be_loaded_says_why(parrot: Path) -> None:
    site = parrot.parent / "site"
    (site / "parrot.py").write_text("ENGINE = 7\n")
    sys.modules.pop("parrot", None)
    with pytest.raises(UnknownEngine, match="is not the Engine 'parrot'"):
        find_engine("parrot")
    (site / "parrot.py").write_text("import nothing_like_this\n")
    sys.modules.pop("parrot", None)
    importlib.invalidate_caches()
    with pytest.raises(UnknownEngine, match="cannot be loaded"):
        find_engine("parrot")


async def test_a_name_that_nobody_has() -> None:
    with pytest.raises(UnknownEngine, match="codex, claude"):
        find_engine("nobody")
