"""`treadle environments …`, `exec --environment` and the SDK's `environment=`, on an exec-server that is a program."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kit.processes import DEADLINE_S
from treadle import AsyncCodex, Codex, CodexConfig, Sandbox
from treadle.cli import main
from treadle.errors import ArgumentTypeError, ArgumentValueError, RpcError
from treadle.own_python import treadle_command

SERVER = treadle_command("exec-server", "--listen", "stdio://")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_HOME", "CODEX_EXEC_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "treadle"
    folder.mkdir()
    monkeypatch.setenv("TREADLE_HOME", str(folder))
    return folder


@pytest.fixture
def there(home: Path, tmp_path: Path) -> Path:
    """The directory of the environment `box`."""
    folder = tmp_path / "there"
    folder.mkdir()
    assert main(["environments", "add", "box", "--workdir", str(folder), "--", *SERVER]) == 0
    return folder


def written(home: Path) -> Any:
    return tomllib.loads((home / "config.toml").read_text()).get("environments", {})


# --- the table -------------------------------------------------------------------------------------------------------


def test_one_is_added_listed_and_removed(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["environments", "list"]) == 0
    assert "No environments configured yet" in capfd.readouterr().out
    words = ["--provider", "ssh", "--option", "host=me@box", "--option", 'args=["x"]', "--workdir", "/srv", "--default"]
    assert main(["environments", "add", "box", *words]) == 0
    assert written(home) == {
        "box": {
            "provider": "ssh",
            "options": {"host": "me@box", "args": ["x"]},
            "workdir": "/srv",
            "default": True,
        }
    }
    assert main(["environments", "add", "far", "--url", "wss://far/s3cret", "--token-env-var", "FAR"]) == 0
    capfd.readouterr()
    assert main(["environments", "list"]) == 0
    assert capfd.readouterr().out == (
        "Name  Kind  Where        Directory  Default\n"
        "box   ssh   me@box       /srv       yes\n"
        "far   url   wss://far/…  -          -\n"
    )
    assert main(["environments", "remove", "far"]) == 0
    assert main(["environments", "remove", "far"]) == 0
    assert list(written(home)) == ["box"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "it needs one of `url`, `program`, `labels` and `provider`"),
        (["x", "--url", "ws://h", "--provider", "ssh"], "it needs one of"),
        (["a b", "--url", "ws://h"], "at most 64 letters"),
        (["local", "--url", "ws://h"], "reserved"),
        (["x", "--provider", "ssh", "--option", "host"], "it is no KEY=VALUE"),
        (["x", "--url", "ws://h", "--workdir", "rel"], "`workdir` must be an absolute path"),
    ],
)
def test_one_that_cannot_be_used_is_not_written(
    home: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["environments", "add", *words]) == 2
    assert said in capfd.readouterr().err
    assert not (home / "config.toml").exists()


def test_a_machine_that_cannot_be_stopped_stays_unless_that_is_forced(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--provider", "worktree", "--option", f"folder={tmp_path}/gone", "--option", "branch=x"]
    assert main(["environments", "add", "try", *words]) == 0
    assert main(["environments", "remove", "try"]) == 1
    assert "gone is not there" in capfd.readouterr().err
    assert list(written(home)) == ["try"]
    assert main(["environments", "remove", "try", "--force"]) == 0
    assert written(home) == {}


# --- connected -------------------------------------------------------------------------------------------------------


def test_what_is_there_is_said(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["environments", "check", "box"]) == 0
    said = capfd.readouterr().out
    assert f"directory  {there}\n" in said
    assert "version    0." in said
    assert "answers in" in said


def test_what_cannot_be_reached_is_said(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["environments", "add", "box", "--", "sh", "-c", "exit 1"]) == 0
    assert main(["environments", "check", "box"]) == 1
    assert "the environment `box` cannot be reached" in capfd.readouterr().err
    assert main(["exec", "--environment", "box", "hello"]) == 1
    assert "treadle environments check box" in capfd.readouterr().err
    assert main(["environments", "check", "nix"]) == 1
    assert "there are box" in capfd.readouterr().err


def test_a_turn_works_there(there: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--environment", "box", "--sandbox", "workspace-write", "look around"]) == 0
    assert f"where    {there} on box\n" in capfd.readouterr().err
    assert [path.name for path in there.iterdir()] == ["treadle-offline-1.md"]
    (there / "below").mkdir()
    assert main(["exec", "resume", "--last", "--environment", "box", "-C", "below", "-s", "workspace-write", "on"]) == 0
    assert [path.name for path in (there / "below").iterdir()] == ["treadle-offline-1.md"]


def test_a_shell_has_the_size_of_the_terminal_and_gives_its_exit_code(there: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*treadle_command("environments", "shell", "box")])
    try:
        said = b""
        end = time.monotonic() + DEADLINE_S

        def until(text: bytes) -> None:
            nonlocal said
            while text not in said:
                assert time.monotonic() < end, said
                if select.select([terminal], [], [], 1)[0]:
                    said += os.read(terminal, 4096)

        # What is typed before the shell reads is not lost: it waits in the terminal there.
        until(b"$ " if os.geteuid() else b"# ")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
        os.write(terminal, b"until [ \"$(stty size)\" = '33 77' ]; do :; done; echo a$((1+1))b; pwd; exit 7\r")
        until(b"a2b")
        until(str(there).encode())
        with suppress(OSError):  # the terminal ends with who has it
            while os.read(terminal, 4096):
                pass
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_without_a_terminal_there_is_no_shell(there: Path) -> None:
    words = treadle_command("environments", "shell", "box")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "a shell needs a terminal" in done.stderr


# --- the SDK ---------------------------------------------------------------------------------------------------------


def test_threads_of_the_sdk_work_there_and_move(there: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with Codex(CodexConfig(cwd=str(here))) as codex:
        thread = codex.thread_start(environment="box", sandbox=Sandbox.workspace_write)
        thread.run("look around")
        assert [path.name for path in there.iterdir()] == ["treadle-offline-1.md"]
        thread.run("and here", environment="local", cwd=here)
        assert [path.name for path in here.iterdir()] == ["treadle-offline-1.md"]


@pytest.mark.anyio
async def test_several_are_given_with_their_directories(there: Path, tmp_path: Path) -> None:
    async with AsyncCodex(CodexConfig(cwd=str(tmp_path))) as codex:
        thread = await codex.thread_start(environment=[("box", there), ("local", tmp_path)])
        places = (await thread.read()).thread.environments
        assert places is not None
        assert [(place.environment_id, place.cwd) for place in places] == [
            ("box", str(there)),
            ("local", str(tmp_path)),
        ]


def test_what_is_no_environment_is_refused(home: Path) -> None:
    with Codex() as codex:
        with pytest.raises(RpcError, match="unknown turn environment id `nix`"):
            codex.thread_start(environment="nix")
        with pytest.raises(ArgumentValueError, match="cwd is on another machine"):
            codex.thread_start(environment="nix", cwd="below")
        wrong: Any = [("box",)]
        with pytest.raises(ArgumentTypeError, match=r"environment\[0\]"):
            codex.thread_start(environment=wrong)
