"""Every example of the SDK, run as its reader would: in a fresh home, offline, from a folder of the reader's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from kit.warm_python import run_python

EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples"
DEADLINE_S: Final = 100

# What a reader has to see, by topic and in this order; `sync.py` and `async.py` show the same.
SHOWN: Final = {
    "approvals": (
        "asked      touch built  (Build?)",
        "completed  touch built",
        "CHANGES.md",
        "declined   git push",
        "It is built, but I was not allowed to publish it.",
    ),
    "errors": (
        "busy:     JSON-RPC error -32001: Server overloaded; retry later.",
        "busy:     JSON-RPC error -32001: Server overloaded; retry later.",
        "answer:   Yes.",
        "failed:   this model takes no such input",
        "was interrupted",
        "(worth another try: False)",
        "answer:   Always.",
    ),
    "many_threads": (
        "What is this?            completed in ",
        "Who wrote it?            completed in ",
        "Is it tested?            completed in ",
        "What is missing?         completed in ",
        "What would you do next?  completed in ",
    ),
    "quickstart": (
        "I am Treadle's offline model",
        "You asked: Look around and leave a note.",
        "commandExecution",
        "fileChange",
        "agentMessage",
        "has 2 turns",
    ),
    "remote": ("connected to a server on linux", "'the long job' went on: completed, 2 turns"),
    "streaming": (
        "plan     See which files are here",
        "command  ls -1",
        "exit code 0 after",
        "treadle-offline-1.md: completed",
        "You asked: Look around and leave a note.",
        "completed after",
        "1 x turn/completed",
    ),
    "structured_output": (
        "One thing to fix.",
        "high  shop.py:12",
        "not a review: the final response is no Review: at $.findings[0].line",
    ),
    "tools": (
        "stock({'product': 'lamp'})  completed",
        "stock({'product': 'lamp', 'shop': 'Lyon'})  completed",
        "Lyon: it has 12, Berlin has 3.",
        '{"pieces":3}',
        '{"pieces":12}',
    ),
}


# A program that runs until it is stopped, with a test of its own: `test_chat_bot_example`.
_NO_TOPIC: Final = Path("chat_bot")


def _scripts() -> list[Path]:
    scripts = (path.relative_to(EXAMPLES) for path in EXAMPLES.glob("*/**/*.py"))
    return sorted(script for script in scripts if script.parent != _NO_TOPIC)


@pytest.mark.parametrize("script", _scripts(), ids=str)
def test_example_shows_what_it_is_about(script: Path, tmp_path: Path) -> None:
    assert str(script.parent) in SHOWN, f"say in SHOWN what {script} has to print"
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CODEX_", "TREADLE_"))}
    environ |= {"HOME": str(home), "TREADLE_HOME": str(home / "treadle")}
    done = run_python(["-W", "default", EXAMPLES / script], cwd=here, env=environ)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rest = done.stdout
    for line in SHOWN[str(script.parent)]:
        _, found, rest = rest.partition(line)
        assert found, f"{line!r} is not there, or not in its place:\n{done.stdout}"


def test_every_topic_is_there_for_both_faces() -> None:
    assert {str(path) for path in _scripts()} == {f"{topic}/{face}.py" for topic in SHOWN for face in ("sync", "async")}


def test_the_list_of_examples_is_whole() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [topic for topic in SHOWN if f"[{topic}]({topic})" not in listed] == []
