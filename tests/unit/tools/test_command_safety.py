"""The list of commands that need no approval, and above all what must not be on it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import is_known_safe

SAFE = [
    "ls",
    "ls -la src",
    "/bin/ls",
    "/usr/bin/wc -l x",
    "cat a b",
    "head -n 5 x",
    "tail -f x",
    "pwd",
    "echo hi there",
    "wc -l x",
    "grep -rn 'a|b' src",
    "rg -n foo src",
    "rg --pretty --pre-glob x foo",
    "find . -name x -type f -mtime -7 -size +10k -maxdepth 2 -print0",
    "sed -n 1,80p x",
    "sed -n 5p x",
    "sed -n 5p",
    "which ls",
    "true",
    "false",
    "stat x",
    "du -sh .",
    "uname -a",
    "whoami",
    "id -u",
    "date",
    "date -u +%F",
    "date --iso-8601=seconds",
    "nl -ba x",
    "sort -rn -k2,3 -t, x",
    "sort --unique x",
    "uniq -c x",
    "uniq",
    "cut -d: -f1 x",
    "tr a b",
    "rev x",
    "seq 1 5",
    "expr 1 + 1",
    "paste a b",
    "numfmt --to=iec 1000",
    "basename /a/b",
    "dirname /a/b",
    "realpath x",
    "cd src",
]
UNSAFE = [
    "rm x",
    "touch x",
    "tee x",
    "xargs rm",
    "env ls",
    "sudo ls",
    "./ls",
    "bin/ls",
    "/tmp/ls",
    "/bin/../tmp/ls",
    "ls2",
    "LS",
    "find . -exec rm x",
    "find . -execdir rm x",
    "find . -ok rm x",
    "find . -okdir rm x",
    "find . -delete",
    "find . -fprint x",
    "find . -fprint0 x",
    "find . -fprintf x y",
    "find . -fls x",
    "find . -files0-from x",
    "find . -newoption",
    "rg --pre x foo",
    "rg --pre=x foo",
    "rg --pr x foo",
    "rg --hostname-bin x foo",
    "rg --hostname-bin=x foo",
    "rg -z foo",
    "rg -nz foo",
    "rg --search-zip foo",
    "sed s/a/b/ x",
    "sed -i s/a/b/ x",
    "sed -n 1p -i",
    "sed -n 1,5w x",
    "sed -n '1,5p;w x' y",
    "sed -n 1e x",
    "sed -ni 1p x",
    "sed -n 1p x -i",
    "sed -n 1p x y",
    "sed 1,5p -n",
    "sed",
    "sort -o x y",
    "sort -ox y",
    "sort -no x y",
    "sort -k1 -o x",
    "sort --output=x y",
    "sort --out=x y",
    "sort --compress-program=x y",
    "sort -T x y",
    "uniq a b",
    "uniq - b",
    "uniq -c a b",
    "uniq -f 1 b",
    "uniq --output x",
    "date -s 2020-01-01",
    "date --set=2020-01-01",
    "date --se 2020-01-01",
    "date 01010000",
    "date -us 2020-01-01",
    "tree -o x",
    "printf -v x y",
    "less x",
    "test -f x",
    "awk 1",
    "python3 -c 1",
    "bash",
    "bash -i",
    "git",
    "git push",
    # It runs what the repository says, whatever it is asked.
    "git status",
    "git log --oneline -5",
    "git diff HEAD~1 -- src",
    "git branch -a",
]


@pytest.mark.parametrize("shell", [None, "/bin/bash", "bash", "sh", "/usr/bin/bash"])
@pytest.mark.parametrize("command", SAFE)
def test_safe(command: str, shell: str | None) -> None:
    argv = shlex.split(command) if shell is None else [shell, "-lc", command]
    assert is_known_safe(argv)


@pytest.mark.parametrize("command", UNSAFE)
def test_unsafe(command: str) -> None:
    for argv in (shlex.split(command), ["/bin/bash", "-lc", command], ["sh", "-c", f"ls && {command}"]):
        assert not is_known_safe(argv)


def test_safe_commands_joined_are_safe() -> None:
    assert is_known_safe(["bash", "-lc", "cd src && ls | head -2; grep -n 'a b' x || true"])


EVIL = [
    "ls > x",
    "ls >> x",
    "ls 2>x",
    "cat < x",
    "echo $(rm x)",
    "echo `rm x`",
    'echo "$(rm x)"',
    'echo "`rm x`"',
    "cat <(rm x)",
    "ls\nrm x",
    "ls \\\nrm",
    "ls & rm x",
    "ls &",
    "ls || rm x",
    "ls | sh",
    "ls; rm x",
    "FOO=bar ls",
    "PATH=. ls",
    "$CMD x",
    "l? x",
    "/bin/l* x",
    "(ls)",
    "{ ls; }",
    "! ls",
    "if ls; then ls; fi",
    "ls {a,b}",
    "find . {-delete,x}",
    "sort *",
    "uniq s*",
    "find *",
    "ls ~",
    "ls ~root",
    "ls a:~",
    "ls a=~",
    "ls\u00a0x",
    "ls\u2028rm x",
    "ls # x",
    "",
    " ",
    "ls;;",
    "exec ls",
    "eval ls",
    "command ls",
    ". x",
    "source x",
    "alias ls=rm",
    "echo 'a\nb'",
    "ls \\-la",
    "cat 'x",
]


@pytest.mark.parametrize("script", EVIL)
@pytest.mark.parametrize("shell", ["/bin/bash", "sh"])
def test_evil_scripts(script: str, shell: str) -> None:
    assert not is_known_safe([shell, "-lc", script])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        ["bash", "-lc"],
        ["bash", "-lc", "ls", "x"],
        ["bash", "-ic", "ls"],
        ["bash", "-x", "ls"],
        ["bash", "--rcfile", "x", "-c", "ls"],
        ["./bash", "-lc", "ls"],
        ["/tmp/bash", "-lc", "ls"],
        ["zsh", "-lc", "ls"],
        ["bash", "-lc", "bash -lc ls"],
        ["ls\n"],
        [" ls"],
        ["ls\0"],
    ],
)
def test_odd_words(argv: list[str]) -> None:
    assert not is_known_safe(argv)


EXPANSIONS = ["$x", "$(x)", "`x`", "*", "?", "[a]", "{x}", "!x", "^x", "\\", "\\x"]
REDIRECTIONS = [">x", "> x", "<x", "<(x)", "(x)"]
OPERATORS = ["&", "& x", "|x", ";x", "&&x", "||x", "|", "&&", "||", ";;", "#x", "'", '"']
CHARACTERS = ["\n", "\nx", "\r", "\u00a0", "\u2003", "\0"]
PIECES = st.sampled_from([*EXPANSIONS, *REDIRECTIONS, *OPERATORS, *CHARACTERS])


@given(st.sampled_from(SAFE), PIECES, st.sampled_from(["", " ", "  "]))
def test_any_piece_of_shell_makes_a_safe_command_unsafe(command: str, piece: str, space: str) -> None:
    assert not is_known_safe(["/bin/bash", "-lc", f"{command}{space}{piece}"])


@given(st.sampled_from(SAFE), PIECES, st.integers(0, 40))
def test_also_in_its_middle_unless_it_is_quoted_there(command: str, piece: str, at: int) -> None:
    script = command[:at] + piece + command[at:]
    quoted = "'" in script or '"' in script
    assert quoted or not is_known_safe(["/bin/bash", "-lc", script])


@given(st.lists(st.text(max_size=8), max_size=4))
def test_any_words_are_judged(argv: list[str]) -> None:
    is_known_safe(argv)
    is_known_safe(["bash", "-lc", " ".join(argv)])
