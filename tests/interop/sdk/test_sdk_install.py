"""The installer and libraries, with a stand-in for pip: none of this needs a registry."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from scripts import install_peers
from scripts.install_peers import PEERS, InstallFailed, Peer, ensure

LIBRARY = Peer("toy", "pypi", "treadle-no-such-package", "1.0", "toy_package", ("a==1", "b==2"), module="toy_package")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "peers"
    monkeypatch.setenv("TREADLE_PEERS", str(folder))
    return folder


def install(monkeypatch: pytest.MonkeyPatch, source: str) -> Path:
    """Install the library, whose only module has this source."""

    def command(peer: Peer, target: Path) -> list[str]:
        package = shlex.quote(str(target / peer.program))
        return ["/bin/sh", "-c", f"mkdir {package}; echo {shlex.quote(source)} >{package}/__init__.py"]

    monkeypatch.setitem(install_peers._COMMANDS, "pypi", command)
    return ensure(LIBRARY)


def test_a_library_has_a_folder_for_each_version_of_python(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert install(monkeypatch, "fine = True") == folder / f"toy-1.0-{sys.implementation.cache_tag}" / "toy_package"


def test_a_library_that_cannot_be_imported_is_not_kept(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with pytest.raises(InstallFailed, match="no_such_module"):
        install(monkeypatch, "import no_such_module")
    assert not (folder / LIBRARY.folder).exists()


def test_what_a_library_requires_is_pinned_and_installed_with_it(tmp_path: Path) -> None:
    command = install_peers._pip_command(LIBRARY, tmp_path)
    assert command[-3:] == ["a==1", "b==2", "treadle-no-such-package==1.0"]
    assert "--no-deps" in command


def test_the_sdk_and_the_program_are_of_one_version() -> None:
    assert PEERS["codex-sdk"].version == PEERS["codex"].version
    assert all("==" in requirement for requirement in PEERS["codex-sdk"].requires)
