"""`command_actions`: what a command does, as far as its text shows: it reads a file, lists files, or searches.

For showing only; nothing is decided by it. A script is recognised wholly or not at all: when one of its commands is not
understood, the whole is one `unknown`, because half of the truth would look like all of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from posixpath import basename, join, normpath
from typing import Final, TypeAlias

from treadle.protocol.app.item_parts import (
    CommandAction,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
)
from treadle.tools.command.safety import ShellCommand, commands_in

_Reading: TypeAlias = Callable[[ShellCommand, str], CommandAction | None]

# Commands that only shape what comes through a pipe, when they are given no file.
_FILTERS: Final = frozenset({"cat", "cut", "head", "nl", "rev", "sed", "sort", "tac", "tail", "tr", "uniq", "wc"})
# Options of `sort` and `tree` that write a file.
_TO_FILE: Final = ("-o", "--output")
_SED_LINES: Final = re.compile(r"(\d+|\$)(,(\d+|\$))?p")
_COUNT: Final = re.compile(r"[+-]?\d+[bkKMG]?")


def command_actions(cmd: str, cwd: str) -> tuple[CommandAction, ...]:
    """The actions of a shell script that is run in `cwd`; at least one."""
    commands = commands_in(cmd)
    actions = None if commands is None else _actions(commands, cwd)
    return tuple(actions) if actions else (UnknownCommandAction(command=cmd),)


def _actions(commands: tuple[ShellCommand, ...], cwd: str) -> list[CommandAction] | None:
    actions: list[CommandAction] = []
    for command in commands:
        argv = command.argv
        if argv[0] == "cd" and len(argv) == 2 and command.operator in ("", "&&", ";"):
            cwd = normpath(join(cwd, argv[1]))
            continue
        if command.operator == "|" and actions and _is_filter(argv):
            continue
        if argv[:2] == ("git", "grep"):
            action = _search(command, cwd, argv[2:], _GREP_VALUES)
        else:
            reading = _READINGS.get(argv[0])
            action = None if reading is None else reading(command, cwd)
        if action is None:
            return None
        actions.append(action)
    return actions


# --- words -----------------------------------------------------------------------------------------------------------


def _operands(words: Iterable[str], with_value: frozenset[str] = frozenset()) -> list[str]:
    """The words that are no options; `with_value` are the options whose value is the next word."""
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands += rest
        elif word in with_value:
            next(rest, None)
        elif not word.startswith("-") or word == "-":
            operands.append(word)
    return operands


def _is_filter(argv: tuple[str, ...]) -> bool:
    if argv[0] not in _FILTERS or any(word.startswith(_TO_FILE) for word in argv):
        return False
    operands = [word for word in argv[1:] if not word.startswith("-")]
    if argv[0] == "sed":
        return argv[1:2] == ("-n",) and len(argv) == 3 and bool(_SED_LINES.fullmatch(argv[2]))
    if argv[0] in ("head", "tail"):
        return all(_COUNT.fullmatch(word) for word in operands)
    return argv[0] in ("tr", "cut", "sort") or not operands


def _read(command: ShellCommand, cwd: str, path: str) -> CommandAction | None:
    if path == "-" or command.has_glob:
        return None
    return ReadCommandAction(command=command.text, name=basename(path.rstrip("/")) or path, path=join(cwd, path))


# --- programs --------------------------------------------------------------------------------------------------------


def _reader(*with_value: str) -> _Reading:
    """A program that prints one file."""

    def read(command: ShellCommand, cwd: str) -> CommandAction | None:
        operands = _operands(command.argv[1:], frozenset(with_value))
        return _read(command, cwd, operands[0]) if len(operands) == 1 else None

    return read


def _sed(command: ShellCommand, cwd: str) -> CommandAction | None:
    argv = command.argv
    if len(argv) != 4 or argv[1] != "-n" or not _SED_LINES.fullmatch(argv[2]) or argv[3].startswith("-"):
        return None
    return _read(command, cwd, argv[3])


def _lister(*with_value: str) -> _Reading:
    """A program that lists the files of one directory."""

    def read(command: ShellCommand, _cwd: str) -> CommandAction | None:
        if any(word.startswith(_TO_FILE) for word in command.argv):
            return None
        operands = _operands(command.argv[1:], frozenset(with_value))
        path = operands[0] if len(operands) == 1 else None
        return ListFilesCommandAction(command=command.text, path=path) if len(operands) <= 1 else None

    return read


_FIND_ACTS: Final = ("-exec", "-ok", "-delete", "-fprint", "-fls")


def _find(command: ShellCommand, _cwd: str) -> CommandAction | None:
    words = command.argv[1:]
    if any(word.startswith(_FIND_ACTS) for word in words):
        return None
    start = words[0] if words and not words[0].startswith(("-", "(", "!")) else None
    for option, value in itertools.pairwise(words):
        if option in ("-name", "-iname", "-path", "-regex"):
            return SearchCommandAction(command=command.text, query=value, path=start)
    return ListFilesCommandAction(command=command.text, path=start)


def _fd(command: ShellCommand, _cwd: str) -> CommandAction | None:
    words = command.argv[1:]
    if any(word.startswith(("-x", "-X", "--exec")) for word in words):
        return None
    operands = _operands(
        words, frozenset({"-t", "-e", "-d", "-E", "--type", "--extension", "--max-depth", "--exclude"})
    )
    if not operands:
        return ListFilesCommandAction(command=command.text)
    if len(operands) > 2:
        return None
    return SearchCommandAction(command=command.text, query=operands[0], path=operands[1] if operands[1:] else None)


def _rg(command: ShellCommand, cwd: str) -> CommandAction | None:
    words = command.argv[1:]
    if any(word == "--pre" or word.startswith("--pre=") for word in words):
        return None
    if "--files" not in words:
        return _search(command, cwd, words, _RG_VALUES)
    operands = _operands(words, _RG_VALUES)
    path = operands[0] if len(operands) == 1 else None
    return ListFilesCommandAction(command=command.text, path=path) if len(operands) <= 1 else None


def _grep(command: ShellCommand, cwd: str) -> CommandAction | None:
    return _search(command, cwd, command.argv[1:], _GREP_VALUES)


def _search(command: ShellCommand, _cwd: str, words: Iterable[str], with_value: frozenset[str]) -> CommandAction | None:
    words = tuple(words)
    patterns = [value for option, value in itertools.pairwise(words) if option in ("-e", "--regexp")]
    operands = _operands(words, with_value)
    if not patterns:
        patterns, operands = operands[:1], operands[1:]
    if len(patterns) != 1:
        return None
    path = operands[0] if len(operands) == 1 else None  # of several paths none is the path
    return SearchCommandAction(command=command.text, query=patterns[0], path=path)


_GREP_VALUES: Final = frozenset({"-e", "--regexp", "-f", "-m", "-A", "-B", "-C", "--include", "--exclude"})
_RG_VALUES: Final = (
    _GREP_VALUES
    | {"-g", "--glob", "--iglob", "-t", "-T", "--type", "--type-not", "-j", "-M", "-d"}
    | {
        "--max-depth",
        "--max-count",
        "--sort",
        "-r",
    }
)
_READINGS: Final[Mapping[str, _Reading]] = {
    "cat": _reader(),
    "bat": _reader("-r", "--line-range", "-l", "--language"),
    "head": _reader("-n", "-c", "--lines", "--bytes"),
    "tail": _reader("-n", "-c", "--lines", "--bytes"),
    "nl": _reader("-b", "-w", "-s", "-v", "-n"),
    "sed": _sed,
    "ls": _lister("-I", "-w", "--ignore"),
    "tree": _lister("-L", "-I", "-P"),
    "find": _find,
    "fd": _fd,
    "rg": _rg,
    "grep": _grep,
    "egrep": _grep,
    "fgrep": _grep,
}
