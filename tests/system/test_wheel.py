"""What is published: what is in it, and that it works alone."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import treadle

REPOSITORY = Path(treadle.__file__).parents[2]
VERSION = treadle.__version__
DEADLINE_S = 100
# Twice what it has today: a picture, a data file or a second copy of something is noticed.
MOST_BYTES = 2_500_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=DEADLINE_S)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"treadle-{VERSION}-py3-none-any.whl"


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        return email.message_from_bytes(opened.read(f"treadle-{VERSION}.dist-info/METADATA"))


def test_the_wheel_is_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"treadle", f"treadle-{VERSION}.dist-info"}
    assert {Path(name).suffix for name in names if name.startswith("treadle/")} == {".py", ".typed", ".sql", ".css"}
    own = {str(path.relative_to(REPOSITORY / "src")) for path in (REPOSITORY / "src").rglob("*.*") if path.is_file()}
    assert {name for name in names if name.startswith("treadle/")} == {
        name for name in own if "__pycache__" not in name
    }
    assert wheel.stat().st_size < MOST_BYTES


def test_the_metadata(wheel: Path) -> None:
    metadata = _metadata(wheel)
    assert (metadata["Name"], metadata["Version"], metadata["Requires-Python"]) == ("treadle", VERSION, ">=3.11")
    classifiers = metadata.get_all("Classifier") or []
    for minor in (11, 12, 13, 14):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert "Typing :: Typed" in classifiers
    assert metadata["License-Expression"] == "MIT"


def test_the_source_has_what_is_needed_to_build_and_test_it(built: Path) -> None:
    with tarfile.open(built / f"treadle-{VERSION}.tar.gz") as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for name in ("pyproject.toml", "Makefile", "LICENSE", "README.md", "src/treadle/py.typed", "tests/conftest.py"):
        assert name in names
    assert not [name for name in names if name.startswith((".venv", ".demo", ".git/")) or "__pycache__" in name]


def test_installed_alone_it_is_a_program(wheel: Path, tmp_path: Path) -> None:
    """In an environment that sees the dependencies here, and not the sources."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=DEADLINE_S)
    environment = {**os.environ, "PYTHONPATH": str(_dependencies(tmp_path)), "TREADLE_HOME": str(tmp_path / "home")}
    for program in ([str(folder / "bin" / "treadle")], [str(folder / "bin" / "python"), "-m", "treadle"]):
        for words, told in ((["--version"], VERSION), (["exec", "hello"], "offline model")):
            done = subprocess.run(
                [*program, *words],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert told in done.stdout, done.stderr
    where = [str(folder / "bin" / "python"), "-c", "import treadle; print(treadle.__file__)"]
    assert str(folder) in subprocess.run(where, env=environment, capture_output=True, text=True, check=True).stdout


def _dependencies(tmp_path: Path) -> Path:
    """What is installed here, without the editable package."""
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    seen = tmp_path / "dependencies"
    seen.mkdir()
    for entry in site.iterdir():
        if not entry.name.startswith(("treadle", "_treadle", "_editable")) and entry.suffix != ".pth":
            (seen / entry.name).symlink_to(entry)
    return seen
