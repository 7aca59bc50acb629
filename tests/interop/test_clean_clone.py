"""`make run` and `make test` in a clean clone: nothing but Python, make and a package registry, in a folder with a name
that a careless script would trip over. Where bubblewrap is, the rest of the disk is read-only, and the second time there
is no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.install_peers import is_network_failure

from interop.peers import NOT_INSTALLED
from interop.programs import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
DEADLINE_S = 200
SOME_TESTS = "tests/unit/test_events.py"
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

    def sh(self, line: str, *, offline: bool = False) -> subprocess.CompletedProcess[str]:
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
        works = shutil.which("bwrap") and subprocess.run([*walls, "true"], capture_output=True, check=False).returncode == 0
        return walls if works else []


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so it cannot be cloned")
    machine = Machine(tmp_path_factory.mktemp("machine"))
    clone = ["git", "-c", "safe.directory=*", "clone", "--quiet", str(ROOT), str(machine.clone)]
    subprocess.run(clone, check=True, timeout=DEADLINE_S)
    return machine


@pytest.fixture(scope="module")
def first_run(machine: Machine) -> subprocess.CompletedProcess[str]:
    done = machine.sh("make run")
    if done.returncode and is_network_failure(done.stderr) and not os.environ.get("TREADLE_REQUIRE_PEERS"):
        pytest.skip(f"{NOT_INSTALLED}: the package registry does not answer")
    return done


def test_the_first_run_shows_a_turn_and_what_is_next(first_run: subprocess.CompletedProcess[str]) -> None:
    assert first_run.returncode == 0, first_run.stderr
    set_up, _, shown = first_run.stdout.partition("$ treadle exec")
    assert re.fullmatch(r"making \.venv …\ninstalling treadle …\n\.venv is ready after \d+ s\n", set_up)
    told = first_run.stderr + shown
    for part in ("See which files are here", "$ ls -1", "hello.py", "+Signed: Treadle", "tokens in", "offline model"):
        assert part in told


def test_what_it_says_to_type_works(machine: Machine, first_run: subprocess.CompletedProcess[str]) -> None:
    _, _, told = first_run.stdout.partition("To go on with it:\n")
    go_on = told.splitlines()[0]
    again = machine.sh(go_on)
    assert again.returncode == 0, again.stderr
    assert "You asked: And once more." in again.stdout
    lines = [line.split("  ")[-1].strip() for line in told.partition("What next?\n")[2].splitlines()]
    own_model, python, engines = lines
    from_python = machine.sh(python)
    assert from_python.stdout.startswith("I am Treadle's offline model"), from_python.stderr
    assert "claude" in machine.sh(engines).stdout
    assert "What does this project do?" in own_model


def test_the_tests_run(machine: Machine, first_run: subprocess.CompletedProcess[str]) -> None:
    done = machine.sh(f"make test WORKERS=1 TESTS={SOME_TESTS}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing treadle and what its tests need …" in done.stdout
    assert "100%" in done.stdout


def test_the_second_time_nothing_is_installed_and_no_network_is_needed(machine: Machine) -> None:
    if not (machine.clone / ".venv" / ".ready-test").exists():
        pytest.skip("there was no first time")
    for goal in ("run", f"test WORKERS=1 TESTS={SOME_TESTS}"):
        done = machine.sh(f"make {goal}", offline=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "installing" not in done.stdout
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=machine.clone, capture_output=True, check=True)
    assert changed.stdout == b""
