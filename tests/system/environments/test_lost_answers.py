"""The connection to a thread's machine is cut at each request of a patch and of a command: everything happens once or
not at all, and what the client and the model are told of it is true."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest

from kit.exec_program import running
from system.agent.scene import Scene, patch, scene, shell
from system.environments.far import Moment, Road, call, executor_environment, far_thread, listening, until
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]  # it has a machine of its own

MOMENTS = get_args(Moment)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("executor")
    address = f"unix://{folder / 'socket'}"
    with running(folder, "--listen", address, env=executor_environment(folder)) as server:
        yield address
        server.check_well()


class Ground:
    def __init__(self, stage: Scene, road: Road, work: Path, thread: str) -> None:
        self.stage = stage
        self.road = road
        self.work = work
        self.thread = thread

    async def call(self, *calls: ToolCall) -> list[str]:
        return await call(self.stage, self.thread, *calls)

    def statuses(self, kind: str) -> list[str]:
        return [item["status"] for item in self.stage.completed(kind)]


@asynccontextmanager
async def ground(tmp_path: Path, executor: str) -> AsyncIterator[Ground]:
    work = tmp_path / "work"
    (work / "empty").mkdir(parents=True)
    (work / "f").write_text("old\n")
    (work / "gone").write_text("gone\n")
    road = Road(executor)
    async with listening(tmp_path / "road", road.accept) as url, scene(tmp_path) as stage:
        yield Ground(stage, road, work, await far_thread(stage, url, work))


def files(work: Path) -> dict[str, str | None]:
    return {str(path.relative_to(work)): path.read_text() if path.is_file() else None for path in work.rglob("*")}


BEFORE = {"empty": None, "f": "old\n", "gone": "gone\n"}
AFTER = {"empty": None, "f": "new\n", "empty/a": "1\n", "deep": None, "deep/er": None, "deep/er/b": "2\n"}
PATCH = patch(
    "*** Update File: f",
    "-old",
    "+new",
    "*** Add File: empty/a",
    "+1",
    "*** Add File: deep/er/b",
    "+2",
    "*** Delete File: gone",
)
REQUESTS = {
    "fs/canonicalize": 10,
    "fs/getMetadata": 16,
    "fs/look": 1,
    "fs/readFile": 4,
    "fs/createDirectory": 4,
    "fs/writeFile": 3,
    "fs/remove": 1,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("method", REQUESTS)
async def test_a_patch_is_applied_once_wherever_it_is_cut(
    tmp_path: Path, executor: str, method: str, moment: Moment
) -> None:
    async with ground(tmp_path, executor) as here:
        for number in range(1, REQUESTS[method] + 1):
            here.road.cut_at(method, number, moment)
            (told,) = await here.call(ToolCall("apply_patch", {"input": PATCH}, None))
            assert here.road.plan is None, f"there is no {method} with the number {number}"
            assert told.startswith("Success"), (number, told)
            assert files(here.work) == AFTER, number
            back = patch(
                "*** Update File: f",
                "-new",
                "+old",
                "*** Delete File: empty/a",
                "*** Delete File: deep/er/b",
                "*** Add File: gone",
                "+gone",
            )
            (told,) = await here.call(ToolCall("apply_patch", {"input": back}, None))
            assert told.startswith("Success"), told
            (here.work / "deep/er").rmdir()
            (here.work / "deep").rmdir()
        assert set(here.statuses("fileChange")) == {"completed"}
        assert files(here.work) == BEFORE


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_folder_that_was_there_stays_when_a_patch_is_taken_back(
    tmp_path: Path, executor: str, moment: Moment
) -> None:
    """The answer that said that it was there already was lost, and a later write fails."""
    async with ground(tmp_path, executor) as here:
        text = patch("*** Add File: empty/a", "+1", "*** Add File: deep/b", "+2", "*** Add File: z", "+3")
        here.road.cut_at("fs/createDirectory", 1, moment)
        here.road.first["fs/writeFile", 3] = (here.work / "z").mkdir
        (told,) = await here.call(ToolCall("apply_patch", {"input": text}, None))
        assert here.road.cuts == 1
        assert told.endswith(f"these could not be put back and must be looked at: {here.work}/z")
        assert here.statuses("fileChange") == ["failed"]
        assert files(here.work) == {**BEFORE, "z": None}


async def test_a_file_that_somebody_else_changed_meanwhile_is_not_overwritten(tmp_path: Path, executor: str) -> None:
    async with ground(tmp_path, executor) as here:
        here.road.cut_at("fs/writeFile", 1, "after")
        cut = here.road.cut

        def cut_and_change() -> None:
            cut()
            (here.work / "f").write_text("of somebody else\n")

        here.road.cut = cut_and_change  # type: ignore[method-assign]
        text = patch("*** Update File: f", "-old", "+new")
        (told,) = await here.call(ToolCall("apply_patch", {"input": text}, None))
        assert "was changed by somebody else while it was written" in told
        assert here.statuses("fileChange") == ["failed"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_command_is_started_once(tmp_path: Path, executor: str, moment: Moment) -> None:
    async with ground(tmp_path, executor) as here:
        for number in range(3):
            here.road.cut_at("process/start", 1, moment)
            (told,) = await here.call(ToolCall("exec_command", shell(f"echo {number} | tee -a ran; exit 3"), None))
            assert "exited with code 3" in told, told
            assert told.rstrip().endswith(f"\n{number}"), told
        assert here.road.cuts == 3
        assert (here.work / "ran").read_text() == "0\n1\n2\n"
        assert [item["exitCode"] for item in here.stage.completed("commandExecution")] == [3, 3, 3]


async def test_a_command_that_ended_long_ago_is_not_started_again(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id may be forgotten there. Nobody knows, and everybody is told."""
    monkeypatch.setattr("treadle.execution.remote_backend.REPEAT_START_S", -1.0)
    async with ground(tmp_path, executor) as here:
        here.road.cut_at("process/start", 1, "before")
        (told,) = await here.call(ToolCall("exec_command", shell("echo x >> ran"), None))
        assert "nobody knows whether the command ran" in told
        assert not (here.work / "ran").exists()
        assert here.statuses("commandExecution") == ["failed"]
        (told,) = await here.call(ToolCall("exec_command", shell("echo y >> ran"), None))
        assert (here.work / "ran").read_text() == "y\n"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_is_typed_arrives_once(tmp_path: Path, executor: str, moment: Moment) -> None:
    async with ground(tmp_path, executor) as here:
        begin = shell("stty -echo; while read line; do echo $line >> typed; done", tty=True, yield_time_ms=250)
        (told,) = await here.call(ToolCall("exec_command", begin, None))
        session = int(told.split("session ID ")[1].split()[0])
        for number in range(3):
            here.road.cut_at("process/write", 1, moment)
            typed = {"session_id": session, "chars": f"{number}\n", "yield_time_ms": 250}
            await here.call(ToolCall("write_stdin", typed, None))
        await until(lambda: (here.work / "typed").exists() and "2" in (here.work / "typed").read_text())
        assert (here.work / "typed").read_text() == "0\n1\n2\n"
        assert here.road.cuts == 3
