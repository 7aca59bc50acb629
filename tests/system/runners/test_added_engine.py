"""The engine of docs/runners.md, added to an installation the way the page says."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from system.runners.fake_engine import first_lines
from treadle.host import EngineRuntime, Opening, TurnEnded
from treadle.runners import (
    ActionEvent,
    CompletedEvent,
    ResumeToken,
    StartedEvent,
    UnknownEngine,
    engine_names,
    engine_statuses,
    find_engine,
    make_runner,
)
from treadle.testing import deny, turn_events

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parents[3] / "docs" / "runners.md"
PROGRAM = f"""{first_lines()}
import json, sys
if "--version" in sys.argv:
    print("parrot 1.4")
    sys.exit()
prompt = sys.stdin.read()
if prompt == "fail":
    sys.exit(4)
session = sys.argv[sys.argv.index("--session") + 1] if "--session" in sys.argv else "bird-1"
print(json.dumps({{"session": session}}))
print(json.dumps({{"tool": "peck"}}))
print(json.dumps({{"text": prompt}}))
"""
# What the engine of the page has besides: who writes an engine may leave it out.
PLAIN = """
from dataclasses import fields, replace

DEFAULTS = {field.name: field.default for field in fields(ENGINE)}
ENGINE = replace(ENGINE, **{name: DEFAULTS[name] for name in ("login", "log_in", "tested")})
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
    monkeypatch.delitem(sys.modules, "parrot", raising=False)
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


@pytest.fixture
def described(parrot: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(parrot.parent))
    monkeypatch.setenv("HOME", str(parrot.parent))
    return parrot


async def test_its_login_and_its_version_are_known_as_those_of_the_built_in_ones(
    described: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [status] = await engine_statuses(["parrot"])
    assert (status.path, status.version, status.tested, status.outdated) == (str(described), "1.4", "2.0", True)
    assert (status.login, status.login_at, status.log_in) == (False, "no ~/.parrot/key", "parrot login")
    monkeypatch.setenv("PARROT_KEY", "very-secret")
    [status] = await engine_statuses(["parrot"])
    assert (status.login, status.login_at) == (True, "PARROT_KEY")


async def test_one_that_says_nothing_about_them_is_as_usable(parrot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(parrot.parent))
    with (parrot.parent / "site" / "parrot.py").open("a") as file:
        file.write(PLAIN)
    [status] = await engine_statuses(["parrot"])
    assert (status.version, status.tested, status.outdated) == ("1.4", None, False)
    assert (status.login, status.login_at, status.log_in, status.problem) == (None, "", None, None)


def test_the_commands_show_it_as_a_built_in_one(described: Path) -> None:
    def treadle(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-m", "treadle", *arguments], env=env, capture_output=True, text=True, timeout=60
        )

    listed = treadle("engines").stdout
    [line] = [line.split() for line in listed.splitlines() if " parrot " in line and "1.4" in line]
    assert line == ["!", "parrot", "1.4", "not", "logged", "in", str(described)]
    assert "no ~/.parrot/key; to log in: parrot login" in listed
    assert "older than 2.0, which Treadle is tested with; to update: pip install parrot" in listed
    examined = treadle("doctor", "parrot")
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert "! version 1.4 is older than 2.0" in examined.stdout
    assert "! not logged in: no ~/.parrot/key" in examined.stdout
    assert "to log in: parrot login" in examined.stdout


async def test_the_host_says_how_to_log_in(described: Path) -> None:
    async with asyncio.timeout(60):
        runtime = EngineRuntime("parrot")
        try:
            await runtime.open(Opening(), deny)
            await runtime.start_turn("fail", {})
            end = (await turn_events(runtime))[-1]
        finally:
            await runtime.close()
    assert isinstance(end, TurnEnded)
    assert end.fault is not None
    assert (end.fault.kind, end.fault.advice) == ("dead", "There seems to be no login; log in: parrot login")


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
