"""A server as a command: plain argparse, since other programs start it and wait for it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn, Protocol, TextIO, cast

from treadle.cli.command_table import SERVE
from treadle.cli.streams import write

_CONFIG_HELP = "a setting that goes before those of config.toml; may be given again, also before the command"


class ServerModule(Protocol):
    """What the module of a server provides."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def run_server(name: str, words: Sequence[str]) -> int:
    return _module(name).run(server_parser(name).parse_args(words))


def server_parser(name: str) -> argparse.ArgumentParser:
    """The parser of a server's words."""
    summary = SERVE[name].summary
    parser = _Parser(
        prog=f"treadle {name}", description=f"{summary[0].upper()}{summary[1:]}.", formatter_class=_formatter
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="config_overrides",
        help=_CONFIG_HELP if name == "app-server" else argparse.SUPPRESS,  # the other one refuses it
    )
    _module(name).add_arguments(parser)
    return parser


def _module(name: str) -> ServerModule:
    return cast(ServerModule, import_module(SERVE[name].module))


class _Parser(argparse.ArgumentParser):
    """Its help and its complaints are written as everything else is: what does not get out is said."""

    def error(self, message: str) -> NoReturn:
        from treadle.cli.exit_codes import REFUSED  # only when the words are wrong
        from treadle.cli.problem import Problem, report

        usage = " ".join(self.format_usage().split())
        problem = Problem(message, why=usage, do=f"{self.prog} --help", code=REFUSED)
        raise SystemExit(report(self.prog.removeprefix("treadle "), problem))

    def _print_message(self, message: str, file: object = None) -> None:
        stream = cast("TextIO | None", file or sys.stderr)
        if message and stream is not None:
            write(stream, message)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # With a fixed width argparse need not load what finds out the terminal's.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)
