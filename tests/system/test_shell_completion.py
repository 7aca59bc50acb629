"""What `treadle completion` prints, in the real shells: a key completes ids and names."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

DEADLINE_S: Final = 60.0
READY: Final = "it is ready"
LOAD: Final = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(treadle completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(treadle completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "treadle completion fish | source"),
}
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|.)|\x08")


class Shell:
    """A shell on a terminal."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.shown = ""

    def type(self, text: str) -> None:
        self.shown = ""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            left = until - time.monotonic()
            assert left > 0, f"{text!r} was not shown, but {self.shown!r}"
            if select.select([self._master], [], [], left)[0]:
                self.shown = _ESCAPES.sub("", self.shown + os.read(self._master, 4096).decode("utf-8", "replace"))


@contextmanager
def shell(name: str, folder: Path) -> Iterator[Shell]:
    argv, load = LOAD[name]
    programs = os.path.dirname(sys.executable)
    env = {
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(folder),
        "TREADLE_HOME": str(folder / "home"),
        "TERM": "dumb" if name != "fish" else "xterm",
        "LANG": "C.UTF-8",
        "PS1": "$ ",
    }
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            ["setsid", "-c", "-w", *argv], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env
        )
        os.close(slave)
        try:
            told = Shell(master)
            told.type(f"{load}; echo it is ''ready\r")
            told.wait_for(READY)
            yield told
        finally:
            for number in (signal.SIGHUP, signal.SIGKILL):
                process.send_signal(number)
            os.close(master)
            master = -1
            process.wait(DEADLINE_S)
    finally:
        if master >= 0:
            os.close(master)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a thread, a profile, a model with a colon in its name, and a project."""
    made = tmp_path_factory.mktemp("shells")
    home = made / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        '[profiles.careful]\n[models."llama3:8b-special"]\ncontext_window = 9000\n'
        '[environments.builder]\nurl = "ws://builder"\n'
    )
    (home / "projects.toml").write_text(f'[projects.website]\npath = "{made}"\n')
    env = {**os.environ, "TREADLE_HOME": str(home)}
    words = [sys.executable, "-m", "treadle", "exec", "--quiet", "where does wool come from?"]
    subprocess.run(words, cwd=made, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    return made


@pytest.fixture(scope="module")
def thread_id(folder: Path) -> str:
    words = [sys.executable, "-m", "treadle", "threads", "list"]
    env = {**os.environ, "TREADLE_HOME": str(folder / "home")}
    listed = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    return listed.partition("\t")[0]


@pytest.mark.parametrize("name", list(LOAD))
def test_a_key_completes_what_is_stored(name: str, folder: Path, thread_id: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    with shell(name, folder) as told:
        for typed, expected in (
            (f"treadle resume {thread_id[:5]}", thread_id),
            (f"treadle threads show {thread_id[-8:-3]}", thread_id[-8:]),
            (f"treadle exec fork {thread_id[:5]}", thread_id),
            ("treadle exec -p care", "careful"),
            ("treadle chat -p care", "careful"),
            ("treadle exec -m llama3:8", "llama3:8b-special"),
            ("treadle run -P web", "website"),
            ("treadle exec --environment buil", "builder"),
            ("treadle environments check buil", "builder"),
        ):
            told.type(f"{typed}\t")
            told.wait_for(f"{typed.rpartition(' ')[0]} {expected}")
            told.type("\x15")  # Ctrl-U: the line is empty again
