"""Engines in words."""

from __future__ import annotations

import io

from rich.console import Console

from treadle.cli import engine_row, rich_lines
from treadle.cli.run.engines import plain
from treadle.runners import EngineStatus, LastError

CODEX = EngineStatus(
    name="codex",
    path="/usr/bin/codex",
    version="0.163.0",
    tested="0.163.0",
    login=True,
    login_at="~/.codex/auth.json",
    log_in="codex login",
    install="npm install -g @openai/codex",
)
OLD = EngineStatus(
    name="claude",
    path="/usr/bin/claude",
    version="1.0.9",
    tested="2.1.197",
    outdated=True,
    login=False,
    login_at="no ~/.claude/.credentials.json",
    log_in="claude, and in it /login",
    install="npm install -g claude",
    last_error=LastError("it\nbroke\x1b[2J " + "x" * 500, 1000.0),
)
MISSING = EngineStatus(name="pi", install="npm install -g pi")
BROKEN = EngineStatus(name="odd", problem="the engine 'odd' of odd-engine cannot be loaded: ImportError('x')")


def test_a_table_for_a_pipe() -> None:
    rows = [engine_row(status, now=1000 + 7200) for status in (CODEX, OLD, MISSING, BROKEN)]
    assert plain(rows) == (
        "✓ codex   0.163.0  ~/.codex/auth.json  /usr/bin/codex\n"
        "! claude  1.0.9    not logged in       /usr/bin/claude\n"
        "          older than 2.1.197, which Treadle is tested with; to update: npm install -g claude\n"
        "          no ~/.claude/.credentials.json; to log in: claude, and in it /login\n"
        f"          last run failed 2 h ago: it broke\\x1b[2J {'x' * 186}…\n"
        "– pi               not installed\n"
        "          to get it: npm install -g pi\n"
        "✗ odd              cannot be loaded\n"
        "          the engine 'odd' of odd-engine cannot be loaded: ImportError('x')\n"
    )


def test_on_a_terminal_notes_keep_their_indent() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=50, markup=False)
    for line in rich_lines([engine_row(OLD, now=1000)]):
        console.print(line)
    first, *notes = screen.getvalue().splitlines()
    assert first.startswith("! claude  1.0.9")
    assert len(notes) > 6
    assert all(note.startswith(" " * 10) and len(note) <= 50 for note in notes)


def test_an_engine_without_a_model_of_its_own_is_no_problem() -> None:
    status = EngineStatus(name="treadle", path="/x", version="1.0", login_at="offline model", log_in="export KEY=…")
    row = engine_row(status, now=0)
    assert (row.mark, row.login, row.program) == ("✓", "offline model", "")
    assert row.notes == ("to use a real model: export KEY=…",)
