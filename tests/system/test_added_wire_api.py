"""The wire API of docs/wire-apis.md, added to an installation the way the page says."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_server import Json, chunked, model_server
from treadle.host import HostAgent, LocalRuntime
from treadle.llm import UnknownWireApi, find_wire_api, wire_api_names
from treadle.testing import check_wire_api

pytestmark = pytest.mark.anyio
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "wire-apis.md").read_text()
DEADLINE = 60.0


def sse(*said: Json) -> list[bytes]:
    return [f"data: {json.dumps(line)}\n\n".encode() for line in said]


CALL = {"call": "c1", "tool": "exec_command", "with": {"cmd": "echo pieces of eight"}}
CALLING = sse({"hello": "a"}, {"say": "I "}, {"say": "look."}, CALL, {"bye": {"read": 10, "wrote": 5}})
SPEAKING = sse({"hello": "b"}, {"say": "Pieces "}, {"say": "of eight!"}, {"bye": {"read": 20, "wrote": 5}})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package of the page, installed."""
    (code,) = re.findall(r"^```python\n(# parrot_api\.py\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(code.splitlines()) < 100
    (point,) = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"', PAGE, re.MULTILINE)
    site = tmp_path / "site"
    information = site / "parrot_api-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "parrot_api.py").write_text(code)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-api\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{point[0]}]\n{point[1]} = {point[2]}\n")
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield site
    sys.modules.pop("parrot_api", None)


async def test_it_holds_what_every_wire_api_holds(site: Path) -> None:
    assert "parrot" in wire_api_names()
    calls = [("exec_command", '{"cmd": "echo pieces of eight"}')]
    check_wire_api(find_wire_api("parrot"), recorded=b"".join(CALLING), text="I look.", calls=calls)
    check_wire_api(find_wire_api("parrot"), recorded=b"".join(SPEAKING), text="Pieces of eight!")


async def test_a_turn_runs_on_it(site: Path, tmp_path: Path) -> None:
    """With a tool: what it gave is in the second request."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    async with asyncio.timeout(DEADLINE), model_server() as server:
        server.play(chunked(CALLING), chunked(SPEAKING))
        (config,) = re.findall(r'^```toml[^\n]*\n(model = "grey".*?)^```', PAGE, re.DOTALL | re.MULTILINE)
        (home / "config.toml").write_text(config.replace("http://localhost:7000/v1", server.base_url))
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TREADLE_HOME": str(home)}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "treadle", "exec", "--skip-git-repo-check", "say it"),
            cwd=project,
            env={**environment, "PYTHONPATH": str(site), "PARROT_KEY": "polly"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told, said = await child.communicate()
    assert child.returncode == 0, said.decode()
    assert "Pieces of eight!" in told.decode()
    first, second = server.asked
    assert first.path == "/v1/chirp"
    assert first.headers["x-parrot-key"] == "polly"
    assert first.body["model"] == "grey"
    assert {"by": "user", "words": "say it"} in first.body["spoken"]
    assert {"by": "assistant", "words": "I look."} in second.body["spoken"]
    assert second.body["spoken"][-1]["call"] == "c1"
    assert "pieces of eight" in second.body["spoken"][-1]["words"]


async def test_one_that_cannot_be_loaded_says_why(site: Path) -> None:
    (site / "parrot_api.py").write_text("WIRE_API = 7\n")
    with pytest.raises(UnknownWireApi, match="is not the WireApi 'parrot'"):
        find_wire_api("parrot")
    (site / "parrot_api.py").write_text("import nothing_like_this\n")
    sys.modules.pop("parrot_api")
    importlib.invalidate_caches()
    with pytest.raises(UnknownWireApi, match="cannot be loaded"):
        find_wire_api("parrot")


async def test_a_name_that_nobody_has() -> None:
    with pytest.raises(UnknownWireApi, match="'nobody' is not one of responses"):
        find_wire_api("nobody")


@pytest.mark.parametrize("runtime", ["parrot", "auto"])
async def test_a_host_speaks_it(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    """By its name, and because the provider has it. The host's own tool is called, and no other is offered."""
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    monkeypatch.setenv("PARROT_KEY", "polly")
    called: list[str] = []

    def spell(word: str) -> str:
        """Spells a word."""
        called.append(word)
        return "-".join(word)

    calling = sse({"hello": "a"}, {"call": "c1", "tool": "spell", "with": {"word": "abc"}}, {"bye": {}})
    async with asyncio.timeout(DEADLINE), model_server() as server:
        server.play(chunked(calling), chunked(SPEAKING))
        (config,) = re.findall(r'^```toml[^\n]*\n(model = "grey".*?)^```', PAGE, re.DOTALL | re.MULTILINE)
        (tmp_path / "config.toml").write_text(config.replace("http://localhost:7000/v1", server.base_url))
        async with HostAgent(runtime, tools=[spell]) as agent:
            result = await agent.arun_conversation("say it")
            assert agent.review_runtime() == "parrot"
    assert (result.error, result.final_response, called) == (None, "Pieces of eight!", ["abc"])


def test_a_host_names_the_wire_apis_that_there_are(site: Path) -> None:
    assert LocalRuntime("parrot").name == "parrot"
    with pytest.raises(ValueError, match="'parrot', not 'cockatoo'"):
        LocalRuntime("cockatoo")
