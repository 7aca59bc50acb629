"""`.gitignore` as git reads it, and in time that a hostile one cannot stretch."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from treadle.execution import MAX_PATTERN, IgnoreRules


@pytest.mark.parametrize(
    ("rules", "path", "ignored"),
    [
        ("*.o", "a/b.o", True),
        ("*.o", "a/b.obj", None),
        ("/out", "out", True),
        ("/out", "a/out", None),
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", None),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/b/c", None),
        ("**/b", "b", True),
        ("**/b", "x/b", True),
        ("a/**", "a/x", True),
        ("*****/b", "x/y/b", True),
        ("a/**", "a", None),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("[z-a]", "m", None),
        ("[z-a]", "z", True),
        ("[!z-a]", "m", True),
        ("[[:digit:]]x", "7x", True),
        ("[]]", "]", True),
        ("[a", "[a", None),
        ("[[:nonsense:]]", "n", None),
        ("a?c", "abc", True),
        ("a?c", "a/c", None),
        (r"\#x", "#x", True),
        (r"a\*", "a*", True),
        (r"a\*", "ab", None),
        ("# note", "# note", None),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r", "a", True),
        ("\ufeffa", "a", True),
        ("", "a", None),
        ("*\n!keep", "keep", False),
        ("*\n!keep\nkeep", "keep", True),
        ("x" * (MAX_PATTERN + 1), "x" * (MAX_PATTERN + 1), None),
    ],
)
def test_one_file(rules: str, path: str, ignored: bool | None) -> None:
    found = IgnoreRules(rules).verdict(path, False)
    assert (found or None) == (ignored or None)  # taken back, and never ignored, are the same for who asks


def test_a_rule_for_directories() -> None:
    rules = IgnoreRules("build/\n")
    assert rules.verdict("a/build", True) is True
    assert rules.verdict("a/build", False) is None


def test_a_rule_speaks_of_what_is_below_its_file() -> None:
    assert IgnoreRules("/out").verdict("deep/out", False, start=5) is True


HOSTILE = [
    "*a" * 60 + "b",
    "**/" * 100 + "b",
    "a/**/" * 60 + "c",
    "**/*a*a*a*a*a*a*a/" * 20 + "b",
    "[a-z]*" * 100 + "0",
    "?*" * 100 + "b",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_ends(pattern: str) -> None:
    """Each would take longer than the universe with expressions that try every way there is."""
    path = "/".join(["a" * 100] * 40)
    assert IgnoreRules("\n".join([pattern] * 20)).verdict(path, False) in (None, False, True)


PIECES = [
    *"ab",
    *"ab",
    "*",
    "*",
    "**",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[z-a]",
    "[a-",
    "\\a",
    "\\",
    ".",
    "!",
    "**/",
    "/**",
]


# Two stars beside a letter: git 2.39 takes them for directories or not by where its strings lie in memory. A slash that
# is escaped, nobody writes.
ODD = re.compile(r"[^/*]\*\*|\*\*[^/*]|\\/")


def test_verdicts_are_those_of_git(tmp_path: Path) -> None:
    chance = random.Random(9)
    names = ["a", "b", "ab", "ba", "aab", "a.b", "x"]
    paths = sorted({"/".join(chance.choices(names, k=chance.randint(1, 4))) for _ in range(250)})
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q", str(tmp_path)], env=environment, check=True)
    for _ in range(60):
        lines = ("".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(3))
        text = "".join(f"{line}\n" for line in lines if not ODD.search(line))
        (tmp_path / ".gitignore").write_text(text)
        done = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin"],
            input="\n".join(paths),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        rules = IgnoreRules(text)
        assert [path for path in paths if _is_ignored(rules, path)] == done.stdout.splitlines(), text


def _is_ignored(rules: IgnoreRules, path: str) -> bool:
    """A file in a directory that is ignored is ignored, whatever is said of it."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return any(rules.verdict(directory, True) for directory in above) or bool(rules.verdict(path, False))
