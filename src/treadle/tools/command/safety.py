"""`commands_in`: the commands of a shell script, when it is so plain that one can be sure of what the shell will do;
`is_known_safe`: whether a command is on the short list of those that only look, and so need no approval.

Plain is: words, quoted or not, joined by `&&`, `||`, `;` and `|`. Everything that a shell would expand, substitute,
redirect, group or run in the background makes the whole script not plain, and the answer is None. Unquoted patterns
(`*.py`) are let through, and marked: for showing they are harmless, for deciding they are not.

The list fails closed: a program, an option or a piece of shell that is not known here makes a command not safe. Being
on the list says nothing about secrets: what may be read is the sandbox's matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

# --- the commands of a script -----------------------------------------------------------------------------------------


_BLANK: Final = " \t"
_GLOB: Final = re.compile(r"[*?\[\]]")
# What stands for itself outside of quotes. `~` is a home directory at the start of a word and after `:` or `=`, but not
# in `HEAD~1`. Beyond ASCII only what can be seen: some locale may take the rest for blanks.
_BARE: Final = re.compile(r"(?:[A-Za-z0-9_./:,@%+=*?\[\]-]|(?<=[A-Za-z0-9])~|[^\x00-\x7f])+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# What does not mean itself inside double quotes; a backslash at the end has escaped the quote. `!` does in interactive
# shells.
_EXPANDED: Final = re.compile(r"[$`!]|\\\\|\\\Z")
_OPERATORS: Final = ("&&", "||", ";", "|")


class ShellWord(Struct, frozen=True):
    text: str
    bare: bool
    """Whether no part of the word was quoted."""
    glob: bool
    """Whether it has an unquoted pattern character, so that the shell may put other words in its place."""


class ShellCommand(Struct, frozen=True):
    """One command of a script, `text` as it was written; `operator` is what stands before it ("" for the first)."""

    operator: str
    words: tuple[ShellWord, ...]
    text: str

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def has_glob(self) -> bool:
        return any(word.glob for word in self.words)


class _NotPlainError(Exception):
    """The script has something in it that is not read here."""


def commands_in(script: str) -> tuple[ShellCommand, ...] | None:
    """The commands of a plain script in order, or None when it is not plain (or empty)."""
    try:
        return _Reader(script).commands()
    except _NotPlainError:
        return None


class _Reader:
    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0

    def commands(self) -> tuple[ShellCommand, ...]:
        found: list[ShellCommand] = []
        operator = ""
        while True:
            found.append(self._command(operator))
            if self._at == len(self._script):
                return tuple(found)
            operator = self._operator()
            self._skip_blanks()
            if self._at == len(self._script) and operator == ";":  # a last `;` ends the command before it
                return tuple(found)

    def _command(self, operator: str) -> ShellCommand:
        self._skip_blanks()
        start = self._at
        words: list[ShellWord] = []
        end = start
        while self._at < len(self._script) and self._script[self._at] not in "&|;":
            words.append(self._word())
            end = self._at
            self._skip_blanks()
        if not words:
            raise _NotPlainError
        return ShellCommand(operator, tuple(words), self._script[start:end])

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self._script.startswith(operator, self._at):
                self._at += len(operator)
                # `;;`, `|&`, `&&&` and the like mean something else, or nothing.
                if self._script[self._at : self._at + 1] in ("&", "|", ";"):
                    raise _NotPlainError
                return operator
        raise _NotPlainError

    def _skip_blanks(self) -> None:
        while self._at < len(self._script) and self._script[self._at] in _BLANK:
            self._at += 1

    def _word(self) -> ShellWord:
        parts: list[str] = []
        bare, glob = True, False
        while self._at < len(self._script):
            char = self._script[self._at]
            if char in _BLANK or char in "&|;":
                break
            if char in "'\"":
                bare = False
                end = self._script.find(char, self._at + 1)
                text = self._script[self._at + 1 : end]
                if end < 0 or _CONTROL.search(text) or (char == '"' and _EXPANDED.search(text)):
                    raise _NotPlainError
                self._at = end + 1
                parts.append(text)
            else:
                found = _BARE.match(self._script, self._at)
                if found is None or not found.group().isprintable():
                    raise _NotPlainError
                self._at = found.end()
                parts.append(found.group())
                glob = glob or _GLOB.search(parts[-1]) is not None
        return ShellWord("".join(parts), bare, glob)


# --- which are harmless -----------------------------------------------------------------------------------------------


_Check: TypeAlias = Callable[[Sequence[str]], bool]
_SHELLS: Final = frozenset({"bash", "sh"})
_SHELL_FLAGS: Final = frozenset({"-lc", "-c"})
# A program by path is only trusted where the system puts its own.
_PROGRAM: Final = re.compile(r"(?:/usr/bin/|/bin/)?([a-z]+)", re.ASCII)


def is_known_safe(argv: Sequence[str]) -> bool:
    """Whether `argv`, or each command of `bash -lc "…"`, is known to change nothing.

    No command of git is: it runs programs that the repository's own configuration names (`core.fsmonitor`,
    `diff.external`, filters), also for `git status`.
    """
    script = _script(argv)
    if script is None:
        return _is_safe(argv)
    commands = commands_in(script)
    return commands is not None and all(not command.has_glob and _is_safe(command.argv) for command in commands)


def _script(argv: Sequence[str]) -> str | None:
    """The text that a shell is asked to run, when `argv` is exactly that."""
    if len(argv) != 3 or argv[1] not in _SHELL_FLAGS:
        return None
    program = _PROGRAM.fullmatch(argv[0])
    return argv[2] if program is not None and program.group(1) in _SHELLS else None


def _is_safe(argv: Sequence[str]) -> bool:
    program = _PROGRAM.fullmatch(argv[0]) if argv else None
    if program is None or any("\0" in word for word in argv):
        return False
    name = program.group(1)
    check = _CHECKS.get(name)
    return name in _HARMLESS or (check is not None and check(argv[1:]))


_HARMLESS: Final = frozenset(
    [
        "basename",
        "cat",
        "cd",
        "cut",
        "dirname",
        "du",
        "echo",
        "expr",
        "false",
        "grep",
        "head",
        "id",
        "ls",
        "nl",
        "numfmt",
        "paste",
        "pwd",
        "realpath",
        "rev",
        "seq",
        "stat",
        "tail",
        "tr",
        "true",
        "uname",
        "wc",
        "which",
        "whoami",
    ]
)


def _options(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith("-") and word != "-"]


def _only(pattern: str) -> _Check:
    """Every option is one of these, wherever it stands."""
    allowed = re.compile(pattern, re.ASCII)
    return lambda words: all(allowed.fullmatch(word) for word in _options(words))


def _abbreviates(word: str, *names: str) -> bool:
    """Whether a program that completes its long options may take `word` for one of them."""
    given = word.partition("=")[0]
    return len(given) > 2 and any(name.startswith(given) for name in names)


def _rg(words: Sequence[str]) -> bool:
    """Whether `rg` only reads: not what runs a program, as `--pre`, `--hostname-bin`, and the unpacking of `-z`."""
    for word in _options(words):
        if not word.startswith("--"):
            if "z" in word:
                return False
        elif _abbreviates(word, "--pre", "--hostname-bin", "--search-zip"):
            return False
    return True


_find: Final = _only(
    r"-(?:name|iname|path|ipath|wholename|iwholename|regex|iregex|regextype|lname|ilname|type|xtype|maxdepth|mindepth|size"
    r"|mtime|mmin|atime|amin|ctime|cmin|newer|anewer|cnewer|newer[aBcmt]{2}|empty|print|print0|printf|ls|prune|quit|not|a|o"
    r"|and|or|true|false|follow|xdev|mount|depth|perm|user|group|uid|gid|nouser|nogroup|links|inum|samefile|readable"
    r"|writable|executable|daystart|noleaf|L|P|H|\d+[a-zA-Z]?)"
)
_SED_LINES: Final = re.compile(r"\d+(,\d+)?p", re.ASCII)


def _sed(words: Sequence[str]) -> bool:
    """`sed -n 'N,Mp' [FILE]` and nothing else: the language of sed can write files and run commands."""
    if len(words) not in (2, 3) or words[0] != "-n" or not _SED_LINES.fullmatch(words[1]):
        return False
    return len(words) == 2 or not words[2].startswith("-")


_uniq_options: Final = _only(r"-[cdDiuz]+|-[fsw]\d+|--(?:count|repeated|ignore-case|unique|zero-terminated)")


def _uniq(words: Sequence[str]) -> bool:
    """A second file would be written."""
    return _uniq_options(words) and len(words) - len(_options(words)) <= 1


def _date(words: Sequence[str]) -> bool:
    """An operand without `+` would set the clock."""
    return _date_options(words) and all(word.startswith(("+", "-")) and word != "-" for word in words)


_date_options: Final = _only(r"-[uR]|-I[a-z]*|--utc|--universal|--(?:iso-8601|rfc-3339|date|reference)=.*|--rfc-email")
_CHECKS: Final[Mapping[str, _Check]] = {
    "date": _date,
    "find": _find,
    "rg": _rg,
    "sed": _sed,
    "sort": _only(
        r"-[bdfghiMnRrVcCmsuz]+|-k[0-9.,bdfgiMhnRrV]*|-t.?"
        r"|--(?:ignore-case|numeric-sort|human-numeric-sort|version-sort|reverse|unique|stable|check|key=.*|field-separator=.*)"
    ),
    "uniq": _uniq,
}
