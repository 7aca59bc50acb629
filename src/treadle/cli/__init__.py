"""The command line: `treadle COMMAND`. `main` finds the command and hands it its words.

`commands` is the table of them, `people` what people's commands are made of, `server_command` what servers are. Each
part has a room: `exec`, `chat`, `threads`, `run` (agent programs), `setup` (keys, settings, models), `checkup` (the
doctor), and `turn`, how a turn looks on a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from treadle.cli.command_table import COMMANDS, SERVE
from treadle.cli.streams import OutputFailed, finish, prepare, write_stderr

_OPTIONS_BEFORE: Final = frozenset(
    [
        *("-c", "--config", "-m", "--model", "-s", "--sandbox", "-C", "--cd", "-p", "--profile", "-i", "--image"),
        *("-a", "--ask-for-approval", "--approval", "--add-dir", "--enable", "--disable", "--local-provider"),
    ]
)
_FLAGS_BEFORE: Final = frozenset(
    ["--oss", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--strict-config", "--debug"]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `treadle` script; returns the exit code."""
    prepare()
    try:
        return finish(_main(_command_first(list(sys.argv[1:] if argv is None else argv))))
    except SystemExit as end:  # argparse, after its help or its complaint; click, after a completion
        return finish(end.code if isinstance(end.code, int) else 0)
    except OutputFailed as error:
        write_stderr(f"treadle: {error}")
        return 1


def _main(words: list[str]) -> int:
    # Only the one that is needed: a server must not pay for what people's commands are made of.
    if words and words[0] in SERVE:
        from treadle.cli.server_command import run_server

        return run_server(words[0], words[1:])
    from treadle.cli.people import run_command

    return run_command(words)


def _command_first(words: list[str]) -> list[str]:
    """SDKs, and callers of Codex, give options before the command: here they come after it. The command knows which
    of them it takes."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, value, _ = words[place].partition("=")
        if name in _FLAGS_BEFORE or (name in _OPTIONS_BEFORE and value):
            place += 1
        elif name in _OPTIONS_BEFORE and place + 1 < len(words):
            place += 2
        else:
            break
    if place < len(words) and words[place] in COMMANDS:
        return [words[place], *words[:place], *words[place + 1 :]]
    return words
