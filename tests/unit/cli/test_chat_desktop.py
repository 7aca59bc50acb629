"""The clipboard, and when somebody who is away is called."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from treadle.cli import QUIET_S, Attention, copy
from treadle.cli.chat import desktop
from treadle.config import TerminalSettings

pytestmark = pytest.mark.anyio


def _program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


async def test_without_a_program_the_terminal_gets_it_as_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    sent: list[str] = []
    said = await copy("evil\x07\x1b]0;x", sent.append, {"DISPLAY": ":0", "TMUX": "x"})
    assert sent == [f"\x1b]52;c;{base64.b64encode(b'evil' + bytes([7, 27]) + b']0;x').decode()}\x07"]
    assert "OSC 52" in said
    assert "10 characters" in said


async def test_a_program_of_the_desktop_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = tmp_path / "got"
    _program(tmp_path / "bin", "wl-copy", f'cat > "{got}"')
    _program(tmp_path / "bin", "xclip", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    sent: list[str] = []
    assert await copy("über", sent.append, {"WAYLAND_DISPLAY": "w"}) == (
        "copied 4 characters to the clipboard with wl-copy"
    )
    assert got.read_text() == "über"
    assert sent == []
    (tmp_path / "bin" / "wl-copy").unlink()
    assert "OSC 52" in await copy("x", sent.append, {"WAYLAND_DISPLAY": "w"})


async def test_a_program_that_fails_or_hangs_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "bin", "xclip", "exit 1")
    _program(tmp_path / "bin", "xsel", "exec sleep 1000")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(desktop, "_COPY_S", 0.05)
    sent: list[str] = []
    assert "OSC 52" in await copy("x", sent.append, {"DISPLAY": ":0"})
    assert len(sent) == 1


async def test_what_no_terminal_takes_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    sent: list[str] = []
    assert (await copy("x" * 100_000, sent.append, {})).startswith("not copied: 100,000 characters")
    assert sent == []


# --- calling somebody ---


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(desktop, "time", clock)
    return clock


def _called(attention: Attention, sent: list[str], kind: str = "agent-turn-complete") -> list[str]:
    sent.clear()
    attention.wanted(kind, "the turn\x1b has\nended")
    return list(sent)


def test_who_has_just_typed_or_looks_is_not_called(clock: Clock) -> None:
    sent: list[str] = []
    attention = Attention(TerminalSettings(), sent.append, {})
    clock.now += QUIET_S - 1
    assert _called(attention, sent) == []
    clock.now += 2
    assert _called(attention, sent) == ["\x07"]  # the terminal cannot tell
    attention.focus_changed(True)
    assert _called(attention, sent) == []
    attention.focus_changed(False)
    assert _called(attention, sent) == ["\x07"]
    attention.key_pressed()
    assert _called(attention, sent) == []


@pytest.mark.parametrize(
    ("environ", "method", "rings"),
    [
        ({"TERM_PROGRAM": "WezTerm"}, "auto", False),
        ({"TERM": "xterm-kitty"}, "auto", False),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, "auto", True),
        ({"TERM": "xterm"}, "auto", True),
        ({"TERM": "xterm"}, "osc9", False),
        ({"TERM": "xterm-kitty"}, "bel", True),
    ],
)
def test_a_notification_where_it_is_shown_and_else_the_bell(
    clock: Clock, environ: dict[str, str], method: str, rings: bool
) -> None:
    sent: list[str] = []
    settings = TerminalSettings(notification_method=method, notification_condition="always")  # type: ignore[arg-type]
    attention = Attention(settings, sent.append, environ)
    shown = "\x1b]9;treadle: the turn\\x1b has ended\x07"
    assert _called(attention, sent) == ["\x07" if rings else shown]


def test_only_what_the_settings_name_calls(clock: Clock) -> None:
    sent: list[str] = []
    for notifications, rings in ((True, 1), (False, 0), (("approval-requested",), 0), (("agent-turn-complete",), 1)):
        settings = TerminalSettings(notifications=notifications, notification_condition="always")
        assert len(_called(Attention(settings, sent.append, {}), sent)) == rings
