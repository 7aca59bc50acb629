"""The shell around a command, how it is shown, and the reading of plain scripts."""

from __future__ import annotations

import itertools
import shlex
import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.tools import asked, commands_in, shell_argv, shown


def test_a_login_shell_is_the_default() -> None:
    shell, flag, script = shell_argv("ls -la")
    assert shell in ("/bin/bash", "/bin/sh")
    assert (flag, script) == ("-lc", "ls -la")


def test_a_shell_can_be_chosen() -> None:
    assert shell_argv("ls", "/usr/bin/zsh", login=False) == ("/usr/bin/zsh", "-c", "ls")


# As the real program shows them; the first ones are from its transcripts.
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sleep 30", "/bin/bash -lc 'sleep 30'"),
        ("echo hi; echo err >&2; exit 3", "/bin/bash -lc 'echo hi; echo err >&2; exit 3'"),
        ("read x; echo got:$x", "/bin/bash -lc 'read x; echo got:$x'"),
        ("sed -n '1,220p' AGENTS.md", "/bin/bash -lc \"sed -n '1,220p' AGENTS.md\""),
        ("ls", "/bin/bash -lc ls"),
        ("", "/bin/bash -lc ''"),
        ("""echo "it's $x" \\`""", '/bin/bash -lc "echo \\"it\'s \\$x\\" \\\\\\`"'),
        ("it's so!", "/bin/bash -lc \"it's so\"'!'"),
    ],
)
def test_how_a_command_is_shown(script: str, expected: str) -> None:
    assert shown(("/bin/bash", "-lc", script)) == expected


def test_a_shell_reads_what_is_shown_as_the_same_words() -> None:
    words = ["".join(characters) for characters in itertools.product("'\"$`\\!^ a", repeat=3)]
    printed = subprocess.run(["/bin/sh", "-c", f"printf '%s\\0' {shown(words)}"], capture_output=True, timeout=60)
    assert printed.stdout.decode().split("\0")[:-1] == words


# Not `$` and backticks: shlex leaves their backslashes in double quotes.
@given(st.lists(st.text(st.characters(exclude_characters="\0$`", codec="utf-8")), min_size=1, max_size=5))
def test_what_is_shown_is_read_as_the_same_words(argv: list[str]) -> None:
    assert shlex.split(shown(argv)) == argv


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    st.sampled_from(["/bin/bash", "/bin/sh", "/usr/bin/zsh", "bash"]),
    st.booleans(),
)
def test_what_a_shell_was_asked_for_is_found_again(script: str, shell: str, login: bool) -> None:
    assert asked(shown(shell_argv(script, shell, login))) == script


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ls -la",
        "bash script.sh",
        "/bin/bash -lc",
        "/bin/bash -lc ls extra",
        "/bin/bash -lc ls extra words",
        "/bin/bash -x ls",
        "/tmp/bash -lc ls",
        "./sh -c ls",
        "/usr/bin/python3 -c 'print(1)'",
        "/bin/bash -lc 'unfinished",
        "/bin/bash -lc ls '",
        "/bin/bash -lc ls \\",
    ],
)
def test_what_is_no_shell_around_a_command_stays_as_it_is(line: str) -> None:
    assert asked(line) == line


def test_a_shell_that_the_model_asked_for_is_kept() -> None:
    assert asked(shown(shell_argv("bash -lc 'ls -la'"))) == "bash -lc 'ls -la'"


# --- plain scripts ---------------------------------------------------------------------------------------------------


def test_words_operators_and_texts() -> None:
    commands = commands_in(" rg -n 'a b' src;ls -la&&cat \"x y\"  | head -2 || true ; ")
    assert commands is not None
    assert [(command.operator, command.text, command.argv) for command in commands] == [
        ("", "rg -n 'a b' src", ("rg", "-n", "a b", "src")),
        (";", "ls -la", ("ls", "-la")),
        ("&&", 'cat "x y"', ("cat", "x y")),
        ("|", "head -2", ("head", "-2")),
        ("||", "true", ("true",)),
    ]


def test_patterns_are_marked_unless_quoted() -> None:
    commands = commands_in("ls *.py '*.md'")
    assert commands is not None
    assert [word.glob for word in commands[0].words] == [False, True, False]
    assert [word.bare for word in commands[0].words] == [True, True, False]


@pytest.mark.parametrize(
    "script",
    [
        "",
        "   ",
        ";",
        "ls;;ls",
        "ls && ",
        "&& ls",
        "ls ||| cat",
        "ls &",
        "ls & cat",
        "ls &&& cat",
        "ls |& cat",
        "ls\ncat",
        "ls 'a\nb'",
        "ls\rcat",
        "ls\\\ncat",
        "ls \\; cat",
        "ls $HOME",
        'ls "$HOME"',
        "ls `x`",
        'ls "`x`"',
        'ls "a\\"b"',
        'ls "a\\',
        "ls 'a",
        'ls "a',
        "ls > x",
        "ls >x",
        "ls 2>&1",
        "cat < x",
        "cat <(x)",
        "(ls)",
        "{ ls; }",
        "ls {a,b}",
        "ls ~",
        "ls # x",
        "! ls",
        'echo "!x"',
        "ls\u00a0-la",
        "ls\u2003-la",
        "ls \u200bx",
        "ls \u202ex",
        "ls \0",
        "ls 'a\x1bb'",
        "ls \ud800",
    ],
)
def test_what_is_not_plain(script: str) -> None:
    assert commands_in(script) is None


@given(st.text(st.sampled_from("ab-./=é \t'\"\\*"), max_size=25))
def test_plain_words_are_those_that_a_shell_reads(script: str) -> None:
    commands = commands_in(script)
    assume(commands is not None)
    assert commands is not None
    (command,) = commands
    assert list(command.argv) == shlex.split(script)
