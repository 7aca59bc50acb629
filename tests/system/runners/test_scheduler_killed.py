"""A scheduler is killed, and the next one takes up what it left."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from system.runners.fake_engine import SESSION, fake

PROGRAM = Path(__file__).with_name("scheduler_process.py")
ENGINE = """
prompt = sys.stdin.read()
start()
if prompt == "long":
    wait_for("never")
answer(prompt + " " + " ".join(sys.argv[-3:-1]))
done()
"""


class Program:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        news: dict[str, Any] = json.loads(self.process.stdout.readline())
        return news

    def hear_until(self, member: str, id: str) -> dict[str, Any]:
        while (news := self.hear()).get(member) != id:
            pass
        return news

    def tell(self, id: str, after: str | None = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([id, after]) + "\n")
        self.process.stdin.flush()

    def kill(self) -> list[dict[str, Any]]:
        """What it had still said."""
        self.process.kill()
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout if line.endswith("\n")]


@contextmanager
def program(home: Path, engine: str) -> Iterator[Program]:
    command = [sys.executable, str(PROGRAM), str(home), engine]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def test_a_run_goes_on_in_its_session_and_what_waited_for_it_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("TREADLE_HOME", str(home))
    engine = fake(tmp_path, ENGINE)
    with program(home, engine) as first:
        assert first.hear() == {"queued": [], "interrupted": [], "orphaned": []}
        first.tell("long")
        first.tell("next", after="long")
        news = [first.hear() for _ in range(3)]
        assert {"started": "long", "session": SESSION} in news
        assert {"submitted": "next"} in news
        first.kill()
    with program(home, engine) as second:
        found = second.hear()
        assert found == {"queued": ["long", "next"], "interrupted": [["long", True]], "orphaned": []}
        answers = [second.hear_until("completed", id)["answer"] for id in ("long", "next")]
        assert answers == [f"continue resume {SESSION}", f"next resume {SESSION}"]
        assert second.process.stdin is not None
        second.process.stdin.close()
        assert second.process.wait(60) == 0
    assert (home / "runs" / "journal").read_bytes() == b""


def noted(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines() if path.exists() else ())


def test_killed_at_any_moment_nothing_announced_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    rng = random.Random(10)
    taken: set[str] = set()
    told: set[str] = set()  # that they have ended
    returned = 0
    for life in range(5):
        with program(tmp_path, "-") as scheduler:
            found = scheduler.hear()
            interrupted = {id for id, _ in found["interrupted"]}
            back = {*found["queued"], *found["orphaned"], *interrupted}
            returned += len(back)
            assert not back & told, "announced as ended, and back"
            assert taken - told <= back | set(noted(tmp_path / "ended")), "announced as taken on, and lost"
            told |= set(found["orphaned"]) | {id for id, continued in found["interrupted"] if not continued}
            for number in range(30):
                scheduler.tell(f"{life}.{number}", f"{life}.{number - 1}" if number % 3 else None)
            news = [scheduler.hear() for _ in range(rng.randrange(60))]
            news += scheduler.kill()
        taken |= {event["submitted"] for event in news if "submitted" in event}
        ended = [event["completed"] for event in news if "completed" in event]
        assert not told & set(ended), "ended twice"
        told |= set(ended)
        assert len(ended) == len(set(ended))
        twice = [line for line, count in noted(tmp_path / "ran").items() if count > 1]
        assert all(line.endswith(" continue") for line in twice), "run twice"
    assert returned, "it was never killed in the middle of anything"
