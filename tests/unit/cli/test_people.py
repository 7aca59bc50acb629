"""What people's commands share: the table, the help, the errors, the completion."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import click
import pytest

from treadle.cli import (
    COMMANDS,
    ROOT,
    SECTIONS,
    SERVE,
    OutputFailed,
    Problem,
    UserCommand,
    main,
    run_command,
    user_command,
)
from treadle.config import ConfigError, ModelUnusable
from treadle.errors import RpcError, TreadleError

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """`treadle version` raises what is put in here."""
    errors: list[Exception] = []

    @user_command("version", summary="fail", config=False)
    def fails() -> int:
        raise errors[0]

    monkeypatch.setattr("treadle.cli.user_commands.version", fails)
    return errors


# --- the table and the help ---


def test_help_fits_one_screen_and_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert len(lines) <= 37
    assert max(map(len, lines)) <= 90
    for title, entries in SECTIONS.items():
        assert title in lines
        for name, entry in entries.items():
            assert any(line.split() == [name, *entry.summary.split()] for line in lines)


def test_nothing_asked_for_is_answered_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "use" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SERVE])
def test_every_command_is_there_and_tells_about_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = getattr(import_module(COMMANDS[name].module), COMMANDS[name].attribute)
    assert isinstance(found, click.Command)
    assert found.name == name
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert COMMANDS[name].summary[1:] in " ".join(told.split())
    assert "--debug" in told or isinstance(found, click.Group)


@pytest.mark.parametrize("name", SERVE)
def test_servers_load_nothing_that_is_for_people(name: str) -> None:
    code = (
        "import sys; from treadle.cli import main\n"
        f"assert main([{name!r}, '--help']) == 0\n"
        "print({'click', 'rich', 'prompt_toolkit'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_options_of_servers_can_be_described() -> None:
    for name in SERVE:
        found = ROOT.get_command(click.Context(ROOT), name)
        assert found is not None
        names = {opt for param in found.params for opt in param.opts}
        assert {"--log-level", "-c"} <= names


@pytest.mark.parametrize("name", SERVE)
def test_a_server_reads_its_own_words_however_it_is_reached(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command([name, "--log-level", "nonsense"])
    assert "nonsense" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command([name, "--help"])
    assert f"usage: treadle {name}" in capsys.readouterr().out


# --- errors ---


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["exek"],
            [
                "treadle: there is no command 'exek'",
                f"  why: the commands are {', '.join(COMMANDS)}",
                "  try: treadle exec; or treadle -- exek, if it is what you want to say to the agent",
            ],
        ),
        (
            ["version", "--jsn"],
            [
                "treadle version: there is no option --jsn",
                "  why: treadle version does not know it",
                "  try: did you mean --json? `treadle version --help` lists the options",
            ],
        ),
        (
            ["exec", "-m", "--json", "x"],
            [
                "treadle exec: -m needs a value, and --json is an option",
                "  why: Usage: treadle exec [OPTIONS] [PROMPT]",
                "  try: treadle exec --help",
            ],
        ),
        (["run", "--timeout", "0", "x"], None),
    ],
)
def test_wrong_words_are_told_in_lines(
    words: list[str], lines: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    if lines is not None:
        assert told.err.splitlines() == lines
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Problem("w", code=7), 7),
        (OutputFailed("w"), 1),
        (ModelUnusable("w"), 1),
        (ConfigError("w"), 2),
        (RpcError(-32600, "w"), 2),
        (TreadleError("w"), 2),
        (OSError(28, "w"), 1),
        (KeyError("w"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: Exception, code: int, failing: list[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(error)
    assert run_command(["version"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_what_why_and_what_to_do(failing: list[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(Problem("it is closed", why="it is Sunday", do="come back tomorrow"))
    assert run_command(["version"]) == 1
    assert capsys.readouterr().err == "treadle version: it is closed\n  why: it is Sunday\n  try: come back tomorrow\n"


def test_traceback_for_who_asks_and_never_a_secret(
    failing: list[Exception], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted-without-a-shape")
    failing.append(KeyError(f"{KEY} planted-without-a-shape \x1b[2J"))
    run_command(["version", "--debug"])
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert KEY not in told
    assert "planted-without-a-shape" not in told
    assert "\x1b" not in told


# --- what stands for a command ---


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        (["fix the failing test"], ["chat", "fix the failing test"]),
        (["-m", "big", "fix the\nfailing test"], ["chat", "-m", "big", "fix the\nfailing test"]),
        (["--", "exce"], ["chat", "--", "exce"]),
        (["-C", "there", "--", "exec"], ["chat", "-C", "there", "--", "exec"]),
        (["exce"], ["exce"]),
        (["exec resume"], ["chat", "exec resume"]),
        (["--nonsense", "fix the test"], ["--nonsense", "fix the test"]),
        (["-m", "big", "resume", "--last"], ["resume", "-m", "big", "--last"]),
    ],
)
def test_only_what_cannot_be_a_mistyped_command_is_a_prompt(
    typed: list[str], run: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def take(words: list[str]) -> int:
        ran.append(words)
        return 0

    monkeypatch.setattr("treadle.cli.user_commands.run_command", take)
    assert main(typed) == 0
    assert ran == [run]


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("resume", ["01a1", "go on"], ("resume", "01a1", "go on")),
        ("fork", ["--last"], ("fork",)),
        ("review", ["--base", "main"], ("review",)),
    ],
)
def test_a_shortcut_is_its_command_with_a_word(name: str, typed: list[str], words: tuple[str, ...]) -> None:
    command = ROOT.get_command(click.Context(ROOT), name)
    assert command is not None
    assert command.make_context(name, typed).params["words"] == words


# --- completion ---


@pytest.mark.parametrize(
    ("typed", "place", "expected"),
    [
        ("treadle ex", 1, {"exec", "exec-server"}),
        ("treadle exec --sand", 2, {"--sandbox"}),
        ("treadle exec --sandbox w", 3, {"workspace-write"}),
        ("treadle app-server --li", 2, {"--listen"}),
        ("treadle doctor cl", 2, {"claude"}),
        ("treadle exec f", 2, {"fork"}),
        ("treadle chat re", 2, {"resume"}),
    ],
)
def test_words_are_completed(typed: str, place: int, expected: set[str]) -> None:
    environment = {**os.environ, "_TREADLE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(place)}
    command = [sys.executable, "-c", "import sys; from treadle.cli import main; sys.argv = ['treadle']; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_TREADLE_COMPLETE" in capsys.readouterr().out


def test_unknown_shell_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == 2
    assert "treadle completion bash" in capsys.readouterr().err


def test_commands_are_people_commands() -> None:
    assert isinstance(import_module("treadle.cli.exec.exec_command").command, UserCommand)
