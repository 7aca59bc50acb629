"""What the real agent programs printed, and the events that it means: `tests/data/engine_events`, reviewed by people.

`TREADLE_UPDATE_GOLDEN=1` writes the files anew; read what has changed before it is kept.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import engine_streams
from engine_streams import Stream
from treadle.runners import (
    BUILT_IN,
    ApprovalAnswer,
    ApprovalAsk,
    CompletedEvent,
    Ending,
    Engine,
    Output,
    OutputReader,
    ResumeToken,
    RunOptions,
    RunRequest,
    StartedEvent,
    find_engine,
)
from treadle.testing import check_engine

FOLDER: Final = Path(__file__).parents[2] / "data" / "engine_events"
CWD: Final = "/tmp/stage/project"  # where the streams were recorded
ENGINES: Final = [name for name, module in BUILT_IN.items() if find_spec(module) is not None]
STREAMS: Final = [stream for name in ENGINES for stream in engine_streams.cases(name)]


def request(engine: Engine[Any], stream: Stream) -> RunRequest:
    async def nobody(ask: ApprovalAsk) -> ApprovalAnswer:
        raise AssertionError("nobody is asked when a recorded run is read")

    argv = stream.meta["argv"]
    session = next((word for word in argv if engine.resume.fits(word)), None)
    return RunRequest(
        prompt=stream.meta["stdin"],
        resume=None if session is None else ResumeToken(engine.name, session),
        options=RunOptions(approve=nobody if "--permission-prompt-tool" in argv else None),
        cwd=CWD,
    )


def read(stream: Stream, *, chunk: int | None = None) -> list[Output]:
    """All that the stream means, in order."""
    engine = find_engine(stream.engine)
    reading = OutputReader(engine, request(engine, stream))
    data = b"".join(stream.lines)
    size = chunk or max(1, len(data))
    outputs = [out for at in range(0, len(data), size) for out in reading.receive(data[at : at + size])]
    code = stream.rc if stream.rc >= 0 else 128 - stream.rc
    return [*outputs, *reading.end(Ending(exit_code=code, lines=reading.lines))]


def written(outputs: list[Output]) -> str:
    lines = [out if isinstance(out, msgspec.Struct) else {type(out).__name__: out} for out in outputs]
    return "".join(f"{msgspec.json.encode(line).decode()}\n" for line in lines)


@pytest.mark.parametrize("stream", STREAMS, ids=str)
def test_a_recorded_stream_means_these_events(stream: Stream) -> None:
    golden = FOLDER / f"{stream}.jsonl"
    found = written(read(stream))
    if os.environ.get("TREADLE_UPDATE_GOLDEN") == "1":
        golden.write_text(found, encoding="utf-8")
    assert golden.exists(), f"no events for {stream}: run with TREADLE_UPDATE_GOLDEN=1, then review {golden}"
    assert found.splitlines() == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("stream", STREAMS, ids=str)
def test_it_does_not_matter_how_a_stream_is_cut_into_pieces(stream: Stream) -> None:
    assert read(stream, chunk=101) == read(stream)


@pytest.mark.parametrize("stream", STREAMS, ids=str)
def test_a_run_starts_at_most_once_and_ends_exactly_once(stream: Stream) -> None:
    outputs = read(stream)
    assert sum(isinstance(out, StartedEvent) for out in outputs) <= 1
    assert [out for out in outputs if isinstance(out, CompletedEvent)] == outputs[-1:]


@pytest.mark.parametrize("stream", [stream for stream in STREAMS if stream.name in ("text", "tool")], ids=str)
def test_every_engine_keeps_what_all_of_them_promise(stream: Stream) -> None:
    started = next(out for out in read(stream) if isinstance(out, StartedEvent))
    check_engine(find_engine(stream.engine), recorded=b"".join(stream.lines), session=started.resume.value)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "treadle"])
def test_every_expectation_belongs_to_a_recorded_stream(engine: str) -> None:
    recorded = {str(stream) for stream in STREAMS if stream.engine == engine}
    assert recorded, f"no recorded streams of {engine}"
    assert {file.stem for file in FOLDER.glob(f"{engine}_*.jsonl")} == recorded
