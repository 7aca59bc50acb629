"""The commands in README and docs, run as they stand there: in a scratch folder, with a fresh home, without a model.

`codex`, `claude` and `ssh` are small scripts. A server is started, and ended when it has said where it listens. In what
a block shows, `…` stands for anything, and a line of it for any lines; numbers and ids may differ.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from scripts import make_configuration

from doc_blocks import BLOCKS, DOCUMENTS, REPOSITORY, Block
from kit.ports import free_port
from kit.warm_python import write_treadle
from system.runners.fake_engine import fake

DEADLINE: Final = 100
CODEX: Final = """
if "--version" in sys.argv:
    print("codex-cli 0.163.0")
    sys.exit()
if not sys.stdin.isatty():
    sys.stdin.read()
start("0199a213-81c0-7800-8aa1-bbab2a035a53")
answer("The answer.")
done()
"""
CLAUDE: Final = """
import uuid
sys.stdin.read()
session = str(uuid.uuid4())
say(type="system", subtype="init", session_id=session, model="m", cwd=".", tools=[])
say(type="result", subtype="success", is_error=False, result="The answer.", session_id=session, usage={})
"""
# Whether a command is a server that goes on until it is ended.
_SERVER: Final = re.compile(r"(?:\S+=\S+ )*(?:ssh \S+ )?treadle (?:app|exec)-server\b(?!.*(stdio://|--help))")


# Its options, the host, and what the user's shell there runs.
_SSH: Final = """\
while [ "${1#-}" != "$1" ]; do case "$1" in -o|-p|-F) shift 2;; *) shift;; esac; done
shift
eval "$*"
"""


class Scratch:
    """A user with an empty home and a small project, and the programs that the documents name."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, programs = folder / "user", folder / "user" / "project", folder / "bin"
        for made in (self.home, self.project, programs):
            made.mkdir()
        fake(programs, CODEX)
        fake(programs, CLAUDE, "claude")
        write_treadle(programs / "treadle")
        _script(programs / "python", f'exec "{sys.executable}" "$@"')
        _script(programs / "ssh", _SSH)
        (self.project / "hello.py").write_text('print("hello")\n')
        (self.project / "notes.txt").write_text("a note\n")
        (self.project / "token").write_text("a-token-of-the-reader")
        (self.project / "token").chmod(0o600)
        # Nobody's settings and keys; only how Python is found.
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_RUNTIME_DIR": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        }
        self._port = free_port()
        self.shell("git init -q . && git add . && git -c user.name=me -c user.email=me@localhost commit -qm first")

    def here(self, text: str) -> str:
        """With addresses of this machine and of this test."""
        return text.replace("ws://0.0.0.0:8765", "ws://127.0.0.1:0").replace(
            "127.0.0.1:4500", f"127.0.0.1:{self._port}"
        )

    def start(self, script: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-ec", self.here(script)],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def shell(self, script: str) -> tuple[int, str]:
        """The exit code, and all that was printed."""
        with self.start(script) as child:
            try:
                printed, _ = child.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                raise
        return child.returncode, printed

    def serve(self, script: str) -> str:
        """What a server prints up to its address. It ends well when it is told to."""
        with self.start(f"exec {script}") as child:
            assert child.stdout is not None
            printed = ""
            for line in child.stdout:
                printed += line
                if re.match(r"(treadle exec-server dials )?(wss?|unix)://", line):
                    break
            os.killpg(child.pid, signal.SIGTERM)
            rest = child.communicate(timeout=DEADLINE)[0]
        assert child.returncode == 0, printed + rest
        return printed


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _run_script(block: Block, scratch: Scratch) -> None:
    commands = [line.split("  #")[0].strip() for line in block.text.replace("\\\n", " ").splitlines()]
    if not any(map(_SERVER.match, commands)):
        code, printed = scratch.shell(block.text)
        assert code == 0, f"{block}: {printed}"
        for name in re.findall(r"(?:> |-o |tee )([\w-]+\.\w+)", block.text):
            assert (scratch.project / name).read_text().strip(), f"{block}: {name} is empty"
        return
    for command in filter(None, commands):
        if _SERVER.match(command):
            scratch.serve(command)
        else:
            code, printed = scratch.shell(command)
            assert code == 0, f"{block}: {printed}"


def _run_session(block: Block, scratch: Scratch) -> None:
    first, *commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert first == "", f"{block}: a console block begins with a command"
    for text in commands:
        command, _, shown = text.partition("\n")
        code, printed = (0, scratch.serve(command)) if _SERVER.match(command) else scratch.shell(command)
        if shown.strip():
            assert _pattern(scratch.here(shown)).fullmatch(_comparable(printed)), f"{block}: {printed}"
        else:
            assert code == 0, f"{block}: {printed}"


_RUN: Final = {"sh": _run_script, "console": _run_session}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(tmp_path)
    yield made
    # What was started by `treadle exec-server --attach` stays for a while.
    code, printed = made.shell(
        'for each in "$HOME"/.treadle/environments/*/; do treadle environments remove "$(basename "$each")"; done'
    )
    assert code == 0, printed
    kept = made.home / ".treadle"
    names = {path.name + "/" * path.is_dir() for path in kept.iterdir()} if kept.exists() else set()
    parts = {"threads.db-wal", "threads.db-shm"}
    assert names - parts <= set(make_configuration.FILES), "docs/configuration.md has no such file of the home"


PAGES: Final = {
    str(document.relative_to(REPOSITORY)): blocks
    for document in DOCUMENTS
    if (blocks := [block for block in BLOCKS if block.document == document and block.runs and block.language in _RUN])
}


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page(page: str, scratch: Scratch) -> None:
    """One after the other, as a reader would type them: a later one may need what an earlier one has made."""
    for block in PAGES[page]:
        _RUN[block.language](block, scratch)


def _pattern(shown: str) -> re.Pattern[str]:
    """Of a long secret the beginning is shown."""
    lines = _comparable(re.sub(r"[0-9a-f]{4}…", "…", shown)).splitlines()
    return re.compile("".join("(?:.*\n)*?" if line == "…" else _line(line) for line in lines))


def _line(shown: str) -> str:
    return ".*?".join(map(re.escape, shown.split("…"))) + "\n"


def _comparable(text: str) -> str:
    """Without ids and numbers. Where bubblewrap is missing, a line says so; what took no time says none."""
    text = re.sub(r"^! This machine cannot.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"(?: ·| in) [\d.]+ ?s$", "", text, flags=re.MULTILINE)
    return re.sub(r"\d+(?:[.,]\d+)*", "N", text.rstrip() + "\n")
