"""How the virtual environment of the repository is made, with a stand-in for pip: nothing is installed."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType

import pytest

import treadle

REPOSITORY = Path(treadle.__file__).parents[2]
SCRIPT = REPOSITORY / "scripts" / "make_venv.py"


class Installer:
    """Does what `python -m venv` and pip do, as far as it is seen: `fails` says how often pip does not."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.fails = 0
        self.killed = False

    def watch(self, command: list[str], title: str) -> list[str] | None:
        self.runs.append(title)
        if "venv" in command:
            self.make_environment(Path(command[-1]))
            return None
        if self.killed:
            raise KeyboardInterrupt
        if self.fails:
            self.fails -= 1
            return ["Collecting x", "ERROR: No matching distribution found for x"]
        return None

    def make_environment(self, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "pyvenv.cfg").touch()

    def make_ready(self, folder: Path) -> None:
        """As another process would."""
        self.make_environment(folder)
        (folder / ".place").write_bytes(os.fsencode(REPOSITORY))
        (folder / ".ready-run").touch()


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_venv", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installer(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Installer:
    installer = Installer()
    monkeypatch.setattr(script, "watch", installer.watch)
    monkeypatch.setattr(script, "PAUSES_S", (0.001, 0.001))
    return installer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".venv"


def ready(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".ready-*"))


def test_a_stage_has_those_before_it(script: ModuleType, installer: Installer, folder: Path) -> None:
    script.make(folder, "run")
    assert ready(folder) == [".ready-run"]
    script.make(folder, "dev")
    assert ready(folder) == [".ready-dev", ".ready-run", ".ready-test"]
    assert installer.runs == [
        "making .venv",
        "installing treadle",
        "installing treadle and its development tools",
    ]


def test_what_is_complete_is_left_alone(script: ModuleType, installer: Installer, folder: Path) -> None:
    script.make(folder, "test")
    installer.runs.clear()
    script.make(folder, "test")
    script.make(folder, "run")
    assert installer.runs == []


def test_the_second_of_two_waits_and_finds_it_done(
    script: ModuleType, installer: Installer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(script, "print", lambda text, **_: said.put(text), raising=False)
    with ThreadPoolExecutor() as pool:
        with SCRIPT.open() as lock:  # closed before the pool waits for its thread, also when this fails
            fcntl.flock(lock, fcntl.LOCK_EX)
            second = pool.submit(script.make, folder, "run")
            assert "waiting for it" in said.get(timeout=60)
            installer.make_ready(folder)
        second.result(60)
    assert installer.runs == []


def test_who_was_stopped_in_the_middle_starts_over(script: ModuleType, installer: Installer, folder: Path) -> None:
    installer.killed = True
    assert script.main([str(folder), "run"]) == 130
    assert ready(folder) == []
    (folder / "bin" / "half a program").touch()
    installer.killed = False
    script.make(folder, "run")
    assert installer.runs[2:] == ["making .venv anew: it was left half made", "installing treadle"]
    assert not (folder / "bin" / "half a program").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("bin/python", "its Python does not run"), (".place", "somebody else made it")],
)
def test_what_does_not_work_is_made_anew(
    script: ModuleType, installer: Installer, folder: Path, name: str, reason: str
) -> None:
    script.make(folder, "run")
    (folder / name).unlink()
    script.make(folder, "run")
    assert installer.runs[2:] == [f"making .venv anew: {reason}", "installing treadle"]


def test_one_that_came_from_another_folder_is_made_anew(script: ModuleType, installer: Installer, folder: Path) -> None:
    script.make(folder, "run")
    (folder / ".place").write_text("/another/clone")
    script.make(folder, "run")
    assert installer.runs[2] == "making .venv anew: it was made for another folder"


def test_what_is_no_environment_is_not_overwritten(
    script: ModuleType, installer: Installer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / "my thesis.txt").write_text("all of it")
    assert script.main([str(folder), "run"]) == 1
    assert "is not a virtual environment" in capsys.readouterr().err
    assert (folder / "my thesis.txt").read_text() == "all of it"
    assert installer.runs == []


def test_pip_is_asked_again(script: ModuleType, installer: Installer, folder: Path) -> None:
    installer.fails = 2
    script.make(folder, "run")
    assert installer.runs.count("installing treadle") == 3
    assert ready(folder) == [".ready-run"]


def test_who_cannot_reach_the_registry_is_told_what_to_do(
    script: ModuleType, installer: Installer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.fails = 3
    assert script.main([str(folder), "run"]) == 1
    told = capsys.readouterr().err
    assert "again in 0.001 s: No matching distribution found for x" in told
    assert "\n  why: pip failed 3 times" in told
    assert "\n  try: the same again when the package registry can be reached" in told
    script.make(folder, "run")
    assert installer.runs.count("making .venv") == 1


def test_an_old_python_is_told_which_one_is_needed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(script.Failed, match=r"This Python is 3\.8; treadle needs 3\.11 or newer"):
        script._check_python((3, 8))


def test_an_old_python_gives_way_to_a_newer_one(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that only says that it is not there, as version managers have them, is passed over."""
    for name, code in (("python3.14", 127), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    def execv(program: str, arguments: list[str]) -> None:
        raise SystemExit(program)

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(SystemExit) as gone:
        script._check_python((3, 8))
    assert gone.value.code == str(tmp_path / "python3.12")


def test_a_python_without_venv_is_told_what_to_install(
    script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert script.main([str(folder), "run"]) == 1
    assert "apt install python3-venv" in capsys.readouterr().err
    assert not folder.exists()


def test_a_log_gets_a_line_and_the_last_words(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    said = "import sys; print('\\n'.join(map(str, range(99)))); sys.exit(3)"
    last = script.watch([sys.executable, "-c", said], "trying")
    assert last == [str(n) for n in range(87, 99)]
    assert capsys.readouterr().out == "trying …\n"
    assert script.watch([sys.executable, "-c", "print('fine')"], "trying") is None


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("Collecting typing-extensions>=4.5.0", "collecting typing-extensions"),
        ("  Downloading rich-15.0.0-py3-none-any.whl (310 kB)", "downloading rich"),
        ("  Using cached mypy_extensions-1.2.0-py3-none-any.whl", "using cached mypy_extensions"),
        ("Installing collected packages: a, b, c", "unpacking 3 packages"),
        ("  Building editable for treadle (pyproject.toml): started", "preparing the build"),
        ("anything else", ""),
    ],
)
def test_what_pip_is_doing(script: ModuleType, line: str, doing: str) -> None:
    assert script.said(deque([line])) == doing


def test_old_pythons_can_read_it() -> None:
    """As far as a new one can tell: the words of 3.7, and nothing that is evaluated when it is loaded."""
    code = "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 7))"
    subprocess.run([sys.executable, "-c", code], input=SCRIPT.read_bytes(), check=True)
    assert "from __future__" not in SCRIPT.read_text()
