"""The command line: `treadle COMMAND`. Each command is a module of this package, loaded when it is asked for.

Plain argparse: the servers are started by other programs, and a start must not pay for pretty printing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, TextIO, cast

from treadle._version import __version__
from treadle.cli.output import OutputFailed, finish, prepare, say, write


class Command(Protocol):
    """What a command module offers."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


# name -> (module, one line for --help)
COMMANDS = {
    "app-server": (
        "treadle.cli.app_server",
        "keep threads and run turns for clients, in the Codex app-server protocol",
    ),
    "exec": ("treadle.cli.exec", "run one turn here and show what happens"),
    "exec-server": ("treadle.cli.exec_server", "run commands for clients here or on other machines"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `treadle` script; returns the exit code."""
    prepare()
    try:
        return finish(_main(argv))
    except SystemExit as end:  # argparse, after its help or its complaint
        return finish(end.code if isinstance(end.code, int) else 0)
    except OutputFailed as error:
        say(f"treadle: {error}")
        return 1


def _main(argv: Sequence[str] | None) -> int:
    overrides, words = _split_overrides(list(sys.argv[1:] if argv is None else argv))
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
            dest="config_overrides",
            help="a setting that goes before those of config.toml; may be given again, also before the command",
        )
        command.add_arguments(parser)
        arguments = parser.parse_args(words[1:])
        arguments.config_overrides = overrides + (arguments.config_overrides or [])
        return command.run(arguments)
    parser = _parser()
    parser.parse_args(words)
    parser.print_help()
    return 2


def _split_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """The settings before the command, as SDKs give them, and the rest."""
    overrides: list[str] = []
    while words:
        if words[0] in ("-c", "--config") and len(words) > 1:
            overrides.append(words[1])
            words = words[2:]
        elif words[0].startswith("--config="):
            overrides.append(words[0].removeprefix("--config="))
            words = words[1:]
        else:
            break
    return overrides, words


class _Parser(argparse.ArgumentParser):
    """Its help and its complaints are written as everything else is: what does not get out is said."""

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
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    parser.add_argument("command", nargs="?", choices=sorted(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
