"""`make run` and `make test` in a clean clone: nothing but Python, make and a package registry.

The folder has a name that a careless script would trip over. Where bubblewrap is, the rest of the disk is read-only,
and the second time there is no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from scripts.install_peers import is_network_failure

from interop.peers import NOT_INSTALLED
from interop.programs import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
DEADLINE_S = 300
SOME_TESTS = "WORKERS=1 TESTS=tests/unit/test_events.py"
Done: TypeAlias = subprocess.CompletedProcess[str]
TO_TYPE = re.compile(r"^    (\S.*)$", re.MULTILINE)
# How the registry is reached is the machine's business; all else is as on a new one.
REGISTRY_VARIABLES = re.compile(r"PIP_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|(https?|no|all)_proxy", re.IGNORECASE)


class Machine:
    """A new one: a home that is empty, and a PATH with Python and the system's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "Größe, mit Leerzeichen" / "treadle"
        (folder / "bin").mkdir()
        (folder / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
        (folder / "home").mkdir()

    def sh(self, line: str, *, offline: bool = False) -> Done:
        command = [*self._walls(offline), "/bin/sh", "-c", line]
        environment = {name: text for name, text in os.environ.items() if REGISTRY_VARIABLES.fullmatch(name)}
        environment |= {"HOME": str(self.folder / "home"), "PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        if offline:
            environment |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_INDEX": "1"}
        return subprocess.run(
            command, cwd=self.clone, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    def _walls(self, offline: bool) -> list[str]:
        folder = str(self.folder)
        walls = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        walls += ["--bind", folder, folder, "--die-with-parent", *(["--unshare-net"] if offline else [])]
        works = (
            shutil.which("bwrap") and subprocess.run([*walls, "true"], capture_output=True, check=False).returncode == 0
        )
        return walls if works else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so it cannot be cloned")
    machine = Machine(tmp_path)
    clone = ["git", "-c", "safe.directory=*", "clone", "--quiet", str(ROOT), str(machine.clone)]
    subprocess.run(clone, check=True, timeout=DEADLINE_S)
    return machine


def test_both_commands_in_a_clean_clone(machine: Machine) -> None:
    """One test, because each step stands on the one before."""
    done = machine.sh("make run")
    if done.returncode and is_network_failure(done.stderr) and os.environ.get("TREADLE_REQUIRE_PEERS") != "1":
        pytest.skip(f"{NOT_INSTALLED}: the package registry does not answer")
    assert done.returncode == 0, done.stderr
    _check_first_run(done)
    _check_next_steps(machine, done.stdout)
    _check_tests(machine)
    _check_second_time(machine)


def _check_first_run(done: Done) -> None:
    set_up, _, shown = done.stdout.partition("$ treadle exec")
    assert re.fullmatch(r"making \.venv …\ninstalling treadle …\n\.venv is ready after \d+ s\n", set_up)
    for part in ("See which files are here", "$ ls -1", "hello.py", "+Signed: Treadle", "tokens in", "offline model"):
        assert part in done.stderr + shown


def _check_next_steps(machine: Machine, shown: str) -> None:
    """What it says to type works as it is printed."""
    go_on, own_model, python, engines = TO_TYPE.findall(shown.partition("To go on with the thread:\n")[2])
    gone_on = machine.sh(go_on)
    assert "You asked: Once more." in gone_on.stdout, gone_on.stderr
    asked = machine.sh(python)
    assert asked.stdout.startswith("I am Treadle's offline model"), asked.stderr
    assert "claude" in machine.sh(engines).stdout
    assert own_model == ".venv/bin/treadle login && .venv/bin/treadle chat"
    assert "which provider" in machine.sh(".venv/bin/treadle login </dev/null").stderr


def _check_tests(machine: Machine) -> None:
    done = machine.sh(f"make test {SOME_TESTS}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing treadle and what its tests need …" in done.stdout
    assert "100%" in done.stdout


def _check_second_time(machine: Machine) -> None:
    for goal in ("run", f"test {SOME_TESTS}"):
        done = machine.sh(f"make {goal}", offline=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "installing" not in done.stdout
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=machine.clone, capture_output=True, check=True)
    assert changed.stdout == b""
