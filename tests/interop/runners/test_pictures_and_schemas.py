"""Pictures and JSON Schemas that our runners give the real agent programs: what of them reaches the mock model."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from interop.peers import installed
from interop.runners.driving import DEADLINE_S, drain, staged
from treadle.runners import RunOptions, Timeouts, make_runner
from treadle.testing import EngineHome, EngineName

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.timeout(400)]
OPTIONS: Final[dict[str, list[str]]] = {"opencode": ["--model", "mock/mock-model"], "pi": ["--provider", "mock"]}


def png() -> bytes:
    """A picture of 64 by 64 points."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(value for x in range(64) for value in (x, y, 9)) for y in range(64))
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    """A home whose model takes pictures: some programs ask their settings for that."""
    with staged(tmp_path, monkeypatch) as stage:
        settings = stage.home / ".config/opencode/opencode.json"
        opencode = json.loads(settings.read_text())
        takes = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
        opencode["provider"]["mock"]["models"]["mock-model"] |= takes
        settings.write_text(json.dumps(opencode))
        settings = stage.home / ".pi/agent/models.json"
        pi = json.loads(settings.read_text())
        pi["providers"]["mock"]["models"][0]["input"] = ["text", "image"]
        settings.write_text(json.dumps(pi))
        yield stage


async def asked(stage: EngineHome, engine: EngineName, options: RunOptions) -> str:
    """All that the model was sent in a run."""
    command = None if engine == "treadle" else str(installed(engine))
    patient = Timeouts(linger=DEADLINE_S, grace=DEADLINE_S)
    runner = make_runner(engine, command, env=stage.env(engine), cwd=stage.project, timeouts=patient)
    runner.extra_args = OPTIONS.get(engine, [])
    completed = (await drain(runner.run("what is this?", options=options)))[-1]
    assert completed.ok, completed
    return "\n".join(request.body.decode() for request in stage.model.requests())


@pytest.mark.parametrize("engine", ["codex", "treadle", "claude", "opencode", "pi"])
async def test_a_picture_reaches_the_model(engine: EngineName, stage: EngineHome, tmp_path: Path) -> None:
    picture = tmp_path / "a picture.png"
    picture.write_bytes(png())
    body = await asked(stage, engine, RunOptions(images=[picture]))
    assert "what is this?" in body
    assert base64.b64encode(picture.read_bytes())[:40].decode() in body


@pytest.mark.parametrize("engine", ["codex", "treadle", "claude"])
async def test_a_schema_reaches_the_model(engine: EngineName, stage: EngineHome, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    members = {"marked": {"type": "string"}}
    schema.write_text(
        json.dumps({"type": "object", "properties": members, "required": ["marked"], "additionalProperties": False})
    )
    assert '"marked"' in await asked(stage, engine, RunOptions(output_schema=schema))
