"""The command line of a server, and what of its standard error is kept and shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from treadle.client import SHOWN_LINES, CodexConfig, CodexError, ServerChild, command_line
from treadle.secrets import redact, secrets_in

SECRET = "correct-horse-battery-staple"


def last_words(code: str, **env: str) -> str:
    """What is shown of a program that writes to standard error and ends."""
    child = ServerChild(CodexConfig(launch_args_override=(sys.executable, "-S", "-c", f"import sys\n{code}"), env=env))
    try:
        error = child.failure("has closed its standard output")
        assert error.stderr_tail in str(error) or not error.stderr_tail
        return error.stderr_tail
    finally:
        child.end()
        child.end()
        child.release()


# --- command lines ---


def test_a_program_is_started_as_an_app_server_with_its_overrides() -> None:
    config = CodexConfig(codex_bin=sys.executable, config_overrides=("model=a", 'b.c="d e"'))
    overrides = ["--config", "model=a", "--config", 'b.c="d e"']
    assert command_line(config) == [sys.executable, *overrides, "app-server", "--listen", "stdio://"]


def test_a_whole_command_line_is_taken_as_it_is() -> None:
    config = CodexConfig(launch_args_override=("a", "b c"), config_overrides=("model=a",))
    assert command_line(config) == ["a", "b c"]


def test_a_program_is_looked_for_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my-codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line(CodexConfig(codex_bin="my-codex"))[0] == str(program)


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"my-codex.*codex_bin"):
        command_line(CodexConfig(codex_bin="my-codex"))


def test_an_empty_command_line_is_refused() -> None:
    with pytest.raises(CodexError, match="launch_args_override is empty"):
        command_line(CodexConfig(launch_args_override=()))


# --- redaction ---


def test_secrets_are_found_by_the_names_of_variables() -> None:
    found = secrets_in(
        {"A_KEY": "long-enough", "B_TOKEN": "much-longer-than-that", "C_KEY": "short", "PATH": "/usr/bin"}
    )
    assert found == ["much-longer-than-that", "long-enough"]


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcdefgh12345678",
        "key=sk-proj-abcdefgh12345678.",
        "sk_live_abcdefgh12345678",
        "ghp_abcdefgh12345678",
        "xoxb-abcdefgh12345678",
        "Authorization: Bearer abcdefgh12345678",
        "authorization: basic abcdefgh12345678==",
        "bearer   abcdefgh12345678",
        '{"authorization":"Bearer abcdefgh12345678"}',
    ],
)
def test_what_looks_like_a_key_is_redacted(text: str) -> None:
    shown = redact(text, [])
    assert "abcdefgh12345678" not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize("text", ["task-management is done", "a bearer of news", "risk-assessment_of_things", "basic"])
def test_plain_words_are_left_alone(text: str) -> None:
    assert redact(text, []) == text


def test_of_two_secrets_the_longer_one_is_taken_out_first() -> None:
    secrets = secrets_in({"A_KEY": "password-1", "B_KEY": "password-1-and-more"})
    assert redact("it is password-1-and-more", secrets) == "it is [redacted]"


# --- standard error ---


def test_the_last_lines_are_kept() -> None:
    shown = last_words("for n in range(1000): print('line', n, file=sys.stderr)").split("\n")
    assert shown == [f"line {number}" for number in range(1000 - SHOWN_LINES, 1000)]


def test_a_line_without_an_end_is_kept() -> None:
    assert last_words("sys.stderr.write('one\\n\\ntwo')") == "one\ntwo"


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert "end" in last_words("sys.stderr.buffer.write(b'\\xff\\xfe end')")


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    assert len(last_words("sys.stderr.write('x' * (1 << 22) + '\\nend')")) < 1 << 20


def test_a_secret_is_redacted_wherever_it_is() -> None:
    assert SECRET not in last_words(
        "import os; print('it is', os.environ['HOUSE_KEY'], file=sys.stderr)", HOUSE_KEY=SECRET
    )


@pytest.mark.parametrize("lead", [4096 - 14, 4096, 65536 - 14, 8192 - 14])
def test_a_secret_at_the_edge_of_what_is_kept_is_not_shown_in_part(lead: int) -> None:
    """Long lines are cut, and pieces come as they like: half a secret is a secret, too."""
    code = f"import os; os.write(2, b'x' * {lead} + os.environb[b'HOUSE_KEY'] + b'\\nend\\n')"
    shown = last_words(code, HOUSE_KEY=SECRET)
    assert shown.endswith("end")
    assert SECRET[:8] not in shown
    assert SECRET[-8:] not in shown


def test_a_secret_of_several_lines_is_redacted() -> None:
    """Such as a private key."""
    key = "-----BEGIN KEY-----\nabcdefghijklmnop\n\nqrstuvwxyzabcdef\n-----END KEY-----"
    shown = last_words("import os; print(os.environ['HOUSE_KEY'], file=sys.stderr)", HOUSE_KEY=key)
    assert "abcdefghijklmnop" not in shown


def test_a_secret_of_an_override_is_redacted(tmp_path: Path) -> None:
    """The server gets it on its command line and may well repeat it."""
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\necho "bad value: $2" >&2\nexit 1\n')
    program.chmod(0o755)
    child = ServerChild(CodexConfig(codex_bin=str(program), config_overrides=(f'a.bearer_token="{SECRET}"',)))
    try:
        shown = child.failure("has closed its standard output").stderr_tail
    finally:
        child.end()
        child.release()
    assert "bad value: a.bearer_token" in shown
    assert SECRET not in shown
