"""Make the pictures of the terminal in `docs/pictures`: real programs in a real terminal, drawn as SVG.

    python -m scripts.make_pictures [--check] [NAME...]

What differs from run to run (ids, times, the folder) is replaced by something of the same width. A picture whose text
has not changed, but for numbers, is left as it is. With `--check` nothing is written; exit code 1 says what would be.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Final

from scripts.run_demo import set_up
from scripts.screen_svg import draw
from scripts.terminal_screen import Row, Terminal

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = REPOSITORY / "docs" / "pictures"
TREADLE: Final = ("python", "-m", "treadle")
# As long as the temporary folders that stand for it, so that nothing moves.
SHOWN_FOLDER: Final = "/home/you/dev"
# Ids of threads, whole or as they are listed, and what they are in a picture: in this order.
# A whole id, or a short one at the beginning of a row.
ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|^[0-9a-f]{8}(?=  )")
SHOWN_IDS: Final = ("01a1e3eb-aca5-7045-b95e-6972d0d5150f", "01a1e3eb-8d19-7c3e-a7b0-c4fbb1e42d07")
SAME: Final = {
    re.compile(r"(?<=thread )[0-9a-f]{8}\b"): "bee62183",
    re.compile(r"(?<![\w.])\d+\.\d(?= ?s\b)"): "0.2",
    re.compile(r"\d+\.\d(?= GB free)"): "48.0",
    re.compile(r"(?<=Python )3\.\d+\.\d+"): "3.11.7",
}
# A program that waits for keys draws nothing any more.
QUIET_S: Final = 0.5
# How long something took is shown if it took long, and what takes long differs.
TOOK: Final = re.compile(r"(?<=\S) · \d+\.\d ?s *$")


@dataclass(frozen=True, slots=True)
class Stage:
    """A machine for one picture: `folder` is where its user works."""

    folder: Path

    def terminal(self, *command: str, columns: int, rows: int, cwd: Path, **more: str) -> Terminal:
        """A command with `.venv` in the folder as its environment: the paths that are printed are those of a clone."""
        environment = {
            "HOME": str(self.folder),
            "PATH": f"{self.folder}/.venv/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "SHELL": "/bin/bash",
            "TZ": "UTC",
        }
        return Terminal(command, columns=columns, rows=rows, cwd=cwd, environment={**environment, **more})


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    columns: int
    take: Callable[[Stage, int], list[Row]]


def _make_run(stage: Stage, columns: int) -> list[Row]:
    demo = str(REPOSITORY / "scripts" / "run_demo.py")
    with stage.terminal(".venv/bin/python", demo, ".demo", columns=columns, rows=150, cwd=stage.folder) as terminal:
        terminal.wait_for_end()
        return terminal.screen()


def _doctor(stage: Stage, columns: int) -> list[Row]:
    with stage.terminal(*TREADLE, "doctor", columns=columns, rows=80, cwd=stage.folder) as terminal:
        terminal.wait_for_end()
        return terminal.screen()


def _chat(stage: Stage, columns: int) -> list[Row]:
    set_up(stage.folder)
    where, home = stage.folder / "project", str(stage.folder / "home")
    command = (*TREADLE, "chat", "--sandbox", "workspace-write")
    with stage.terminal(*command, columns=columns, rows=100, cwd=where, TREADLE_HOME=home) as terminal:
        terminal.wait_for("Ctrl-D leaves", quiet=QUIET_S)
        terminal.type("Look around and leave a note.\r")
        terminal.wait_for(r"tokens in.* tokens · \d+% context left", quiet=QUIET_S)
        return terminal.screen()


def _threads(stage: Stage, columns: int) -> list[Row]:
    """Two conversations, and how they are found again."""
    set_up(stage.folder)
    where, home = stage.folder / "project", str(stage.folder / "home")
    shell = " && ".join(
        [
            "python -m treadle exec 'Look around and leave a note.' >/dev/null 2>&1",
            "python -m treadle exec 'Why does the login test fail?' >/dev/null 2>&1",
            "clear",
            "echo '$ treadle threads list'",
            "python -m treadle threads list",
            "echo && echo '$ treadle threads search login test'",
            "python -m treadle threads search login test",
        ]
    )
    with stage.terminal("/bin/sh", "-c", shell, columns=columns, rows=60, cwd=where, TREADLE_HOME=home) as terminal:
        terminal.wait_for_end()
        return terminal.screen()


ALL: Final = {
    "run": Picture("make run", 100, _make_run),
    "chat": Picture("treadle chat", 100, _chat),
    "threads": Picture("treadle threads", 100, _threads),
    "doctor": Picture("treadle doctor", 100, _doctor),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pictures of the terminal in docs/pictures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(ALL)}; all without one")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if there is something to write"
    )
    given = parser.parse_args()
    stale = [name for name in given.names or ALL if not _up_to_date(name, write=not given.check)]
    for name in stale:
        print(f"{PICTURES / name}.svg {'is stale: run `make pictures`' if given.check else 'written'}")
    return 1 if stale and given.check else 0


def _up_to_date(name: str, *, write: bool) -> bool:
    path = PICTURES / f"{name}.svg"
    made = picture(name)
    if path.exists() and comparable(path.read_text()) == comparable(made):
        return True
    if write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made)
    return False


def picture(name: str) -> str:
    chosen = ALL[name]
    with _stage() as stage:
        ids: dict[str, str] = {}
        rows = [_steady(row, str(stage.folder), ids) for row in chosen.take(stage, chosen.columns)]
    return draw(rows, columns=chosen.columns, title=chosen.title)


def comparable(svg: str) -> str:
    """What is said in a picture, without the numbers: how many tokens there were is no reason to draw it anew."""
    texts = re.findall(r'<text x="[\d.]+" y="(\d+)"[^>]*>(.*?)</text>', svg)
    return "\n".join(f"{y} {re.sub(r'[0-9]+', '0', unescape(text)).strip()}" for y, text in texts)


@contextmanager
def _stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="", dir="/tmp") as folder:
        assert len(folder) == len(SHOWN_FOLDER), folder
        (Path(folder) / ".venv").symlink_to(sys.prefix)
        yield Stage(Path(folder))


def _steady(row: Row, folder: str, ids: dict[str, str]) -> Row:
    """The same row whenever it is taken. What is replaced keeps its width, so that every cell keeps its style."""
    text = "".join(cell.text for cell in row)
    if len(text) != len(row):  # a character of two cells: nothing to replace in such a row
        return row
    steady = text.replace(folder, SHOWN_FOLDER)
    if text.lstrip().startswith("✓"):
        steady = TOOK.sub(partial(_as_wide, ""), steady)
    for found in ID.findall(steady):
        if found not in ids:
            ids[found] = SHOWN_IDS[len(ids)][-len(found) :]
        steady = steady.replace(found, ids[found])
    for pattern, shown in SAME.items():
        steady = pattern.sub(partial(_as_wide, shown), steady)
    return tuple(replace(cell, text=letter) for cell, letter in zip(row, steady, strict=True))


def _as_wide(shown: str, found: re.Match[str]) -> str:
    return shown[: len(found[0])].ljust(len(found[0]))


if __name__ == "__main__":
    sys.exit(main())
