"""`Environment.run` over a backend that the test makes up: failures come as they are, losses are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from treadle.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, ExecError, ExecTimeout
from treadle.execution import (
    Data,
    Environment,
    ExecParams,
    Files,
    OutputStream,
    Process,
    ProcessInfo,
    WriteResult,
    WriteStatus,
)
from treadle.protocol.exec import EnvironmentInfo, Shell, SignalName

pytestmark = pytest.mark.anyio


class Scripted(Process):
    """Writes fail with `refusal`; `play` adds events when stdin is written to."""

    def __init__(self, refusal: ExecError | None, play: Callable[[Scripted], None]) -> None:
        super().__init__("p", retained_bytes=100)
        self._refusal = refusal
        self.play = play
        self.terminated = 0

    def finish(self) -> None:
        self._add_exit(0)
        self._add_close()

    async def write(self, data: Data) -> WriteResult:
        self.play(self)
        if self._refusal is not None:
            raise self._refusal
        return WriteResult(WriteStatus.ACCEPTED)

    async def close_stdin(self) -> None: ...

    async def signal(self, name: SignalName) -> None: ...

    async def terminate(self, grace_s: float = 0.0) -> bool:
        self.terminated += 1
        return True

    async def resize(self, rows: int, cols: int) -> None: ...


class Backend:
    def __init__(self, process: Scripted) -> None:
        self._process = process

    async def start(self, params: ExecParams) -> Process:
        if not params.pipe_stdin:
            self._process.play(self._process)
        return self._process

    async def processes(self) -> list[ProcessInfo]:
        return []


def _environment(process: Scripted) -> Environment:
    info = EnvironmentInfo(shell=Shell(name="sh", path="/bin/sh"), cwd="file:///")
    return Environment(Backend(process), cast(Files, None), info, lambda: None)


async def test_refusal_while_input_is_given_is_raised_as_it_is() -> None:
    process = Scripted(ExecError("cannot close stdin", METHOD_NOT_FOUND), lambda _: None)
    with pytest.raises(ExecError, match="cannot close stdin") as caught:
        await _environment(process).run(["cat"], input=b"x")
    assert caught.value.code == METHOD_NOT_FOUND
    assert process.terminated == 1


async def test_command_that_does_not_read_its_input_is_no_failure() -> None:
    process = Scripted(ExecError("failed to write", INTERNAL_ERROR), Scripted.finish)
    assert (await _environment(process).run(["true"], input=b"x")).exit_code == 0


async def test_output_that_came_too_fast_is_told() -> None:
    def play(process: Scripted) -> None:
        for _ in range(3):
            process._add_output(OutputStream.STDOUT, b"x" * 60)
        process.finish()

    result = await _environment(Scripted(None, play)).run(["x"])
    assert result.output == b"x" * 60
    assert result.truncated


async def test_lost_process_is_an_error() -> None:
    process = Scripted(None, lambda process: process._fail("gone"))
    with pytest.raises(ExecError, match="gone"):
        await _environment(process).run(["x"])


async def test_timeout_ends_the_command_and_keeps_what_it_wrote() -> None:
    process = Scripted(None, lambda process: process._add_output(OutputStream.STDOUT, b"so far"))
    with pytest.raises(ExecTimeout) as caught:
        await _environment(process).run(["x"], timeout=0.01)
    assert caught.value.output == b"so far"
    assert process.terminated == 1
