"""The command line: `treadle COMMAND`. Each command is a module of this package, imported when it is used.

Plain argparse: other programs start the servers, and their start must not pay for pretty printing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, TextIO, cast

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.cli.streams import OutputFailed, finish, prepare, write, write_stderr


class Command(Protocol):
    """What a command module provides. It may also define `parse`, to parse the arguments itself."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


# name -> (module, one line for --help)
COMMANDS = {
    "run": ("treadle.cli.run", "run any agent program once: codex, claude, opencode, pi or our own"),
    "engines": ("treadle.cli.engines", "show which agent programs are installed, their versions and logins"),
    "models": ("treadle.cli.list_models", "list the models of a provider, with context size and price where known"),
    "doctor": ("treadle.cli.doctor", "try out every installed agent program, and Treadle itself, offline"),
    "app-server": (
        "treadle.cli.app_server",
        "keep threads and run turns for clients, in the Codex app-server protocol",
    ),
    "exec": ("treadle.cli.exec_command", "run one turn here and show what happens"),
    "exec-server": ("treadle.cli.exec_server", "run commands for clients here or on other machines"),
}

_OPTIONS_BEFORE = frozenset(
    [
        *("-c", "--config", "-m", "--model", "-s", "--sandbox", "-C", "--cd", "-p", "--profile", "-i", "--image"),
        *("-a", "--ask-for-approval", "--add-dir", "--enable", "--disable", "--local-provider"),
    ]
)
_FLAGS_BEFORE = frozenset(["--oss", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "--strict-config"])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `treadle` script; returns the exit code."""
    prepare()
    try:
        return finish(_main(argv))
    except SystemExit as end:  # argparse, after its help or its complaint
        return finish(end.code if isinstance(end.code, int) else 0)
    except OutputFailed as error:
        write_stderr(f"treadle: {error}")
        return 1


def _main(argv: Sequence[str] | None) -> int:
    words = _command_first(list(sys.argv[1:] if argv is None else argv))
    if words and words[0] in COMMANDS:
        module, summary = COMMANDS[words[0]]
        command = cast(Command, import_module(module))
        parser = _Parser(
            prog=f"treadle {words[0]}", description=f"{summary[0].upper()}{summary[1:]}.", formatter_class=_formatter
        )
        parser.add_argument(
            "-c",
            "--config",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            dest="config_overrides",
            help="a setting that goes before those of config.toml; may be given again, also before the command",
        )
        command.add_arguments(parser)
        parse = getattr(command, "parse", argparse.ArgumentParser.parse_args)
        return command.run(parse(parser, words[1:]))
    parser = _parser()
    parser.parse_args(words)
    parser.print_help()
    return 2


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


class _Parser(argparse.ArgumentParser):
    """Its help and its stderr_lines are written as everything else is: what does not get out is said."""

    def _print_message(self, message: str, file: object = None) -> None:
        stream = cast("TextIO | None", file or sys.stderr)
        if message and stream is not None:
            write(stream, message)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # With a fixed width argparse need not load what finds out the terminal's.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def _parser() -> _Parser:
    width = max(len(name) for name in COMMANDS)
    listing = "\n".join(f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    parser = _Parser(
        prog="treadle",
        usage="treadle COMMAND [OPTIONS]",
        description="Run coding agents, and the commands they need, from Python.",
        epilog=f"commands:\n{listing}\n\n`treadle COMMAND --help` tells more about a command.",
        formatter_class=_formatter,
    )
    # Clients of codex take the first number for its version, so ours comes second.
    version = f"codex-cli {PROTOCOL_VERSION} (treadle {__version__}, which speaks its protocol)"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("command", nargs="?", choices=sorted(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
