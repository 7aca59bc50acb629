"""The installer of the peers, with stand-ins for the programs: none of this needs a registry."""

from __future__ import annotations

import os
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from scripts import install_peers
from scripts.install_peers import InstallFailed, Peer, RegistryUnreachable, cache_folder, ensure, is_network_failure

PEER = Peer("toy", "pypi", "treadle-no-such-package", "1.0", "bin/toy")
NPM_PEER = Peer("toy", "npm", "treadle-no-such-package", "1.0", "node_modules/.bin/toy")
PIP_FOUND_NOTHING = "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: {})\n"
PIP_RETRIES = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/x/\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "peers"
    monkeypatch.setenv("TREADLE_PEERS", str(folder))
    for name in [name for name in os.environ if name.lower().startswith(("pip_", "npm_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replaces pip by a shell script that leaves a line here for each run, and installs a program."""
    log = tmp_path / "runs"
    log.touch()

    def command(peer: Peer, target: Path) -> list[str]:
        program = shlex.quote(str(target / peer.program))
        script = f"echo run >>{shlex.quote(str(log))}; mkdir -p $(dirname {program}); echo '#!/bin/sh' >{program}"
        return ["/bin/sh", "-c", script]

    monkeypatch.setitem(install_peers._COMMANDS, "pypi", command)
    return log


def test_a_program_is_installed_once(runs: Path, folder: Path) -> None:
    program = ensure(PEER)
    assert program == folder / "toy-1.0" / "bin" / "toy"
    assert os.access(program, os.X_OK)
    assert ensure(PEER) == program
    assert runs.read_text() == "run\n"


def test_runs_at_the_same_time_install_it_once(runs: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        programs = set(pool.map(lambda _: ensure(PEER), range(8)))
    assert len(programs) == 1
    assert runs.read_text() == "run\n"


def test_the_remains_of_a_killed_run_do_not_matter(runs: Path, folder: Path) -> None:
    for remains in (".toy-1.0.partial", "toy-1.0"):
        (folder / remains).mkdir(parents=True)
        (folder / remains / "half").touch()
    program = ensure(PEER)
    assert program.exists()
    assert not (folder / "toy-1.0" / "half").exists()


def test_a_program_that_does_not_run_is_not_kept(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def command(peer: Peer, target: Path) -> list[str]:
        script = 'mkdir "$0"/bin; printf "#!/bin/sh\nexit 4" >"$0"/bin/toy'
        return ["/bin/sh", "-c", script, str(target)]

    monkeypatch.setitem(install_peers._COMMANDS, "pypi", command)
    with pytest.raises(InstallFailed, match="exit 4"):
        ensure(PEER)
    assert not (folder / "toy-1.0").exists()


def test_a_registry_that_does_not_answer_is_tried_again_and_then_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setitem(install_peers.PEERS, "toy", PEER)
    with pytest.raises(RegistryUnreachable, match="2 attempts"):
        ensure(PEER, pauses=(0,))
    assert install_peers.main(["toy"], pauses=()) == 3
    assert "NOT INSTALLED" in capsys.readouterr().err


def test_a_package_that_does_not_exist_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setitem(install_peers.PEERS, "toy", PEER)
    assert install_peers.main(["toy"]) == 1
    said = capsys.readouterr().err
    assert "attempt 1 of" in said
    assert "attempt 2 of" not in said


@pytest.mark.parametrize(
    ("output", "network"),
    [
        (PIP_RETRIES + PIP_FOUND_NOTHING.format("none"), True),
        (PIP_FOUND_NOTHING.format("none"), False),
        (PIP_FOUND_NOTHING.format("0.1, 0.2"), False),
        (PIP_RETRIES + PIP_FOUND_NOTHING.format("0.1, 0.2"), False),
        ("ReadTimeoutError: HTTPSConnectionPool(host='files'): Read timed out.", True),
        ("ERROR: HTTP error 503 while getting x\n503 Server Error: Unavailable for url", True),
        ("ERROR: No space left on device", False),
        ("npm error code ENOTFOUND\nnpm error network request to the registry failed", True),
        ("npm error code E503\nnpm error 503 Service Unavailable - GET /opencode-ai", True),
        ("npm error code ETARGET\nnpm error notarget No matching version found for x@9.", False),
        ("npm error code E404\nnpm error 404 Not Found - GET /x - Not found", False),
        ("npm error code ENOSPC\nnpm error syscall write", False),
    ],
)
def test_only_an_unanswered_registry_counts_as_a_network_failure(output: str, network: bool) -> None:
    assert is_network_failure(output) is network


def test_the_cache_is_outside_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "peers"
    monkeypatch.delenv("TREADLE_PEERS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "treadle" / "peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "treadle" / "peers"


def test_a_name_that_is_no_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        install_peers.main(["nobody"])
    assert caught.value.code == 2
    assert "nobody" in capsys.readouterr().err


def test_pip_is_asked_for_the_pinned_version(tmp_path: Path) -> None:
    command = install_peers._pip_command(PEER, tmp_path)
    assert command[1:4] == ["-m", "pip", "install"]
    assert command[-1] == "treadle-no-such-package==1.0"


def test_npm_is_asked_for_the_pinned_version_and_for_the_rest_of_that_day(tmp_path: Path, bin_folder: Path) -> None:
    for name in ("npm", "node"):
        (bin_folder / name).touch(0o755)
    command = install_peers._npm_command(NPM_PEER, tmp_path)
    assert command[:4] == [str(bin_folder / "npm"), "install", "--prefix", str(tmp_path)]
    assert command[-1] == "treadle-no-such-package@1.0"
    assert f"--before={install_peers.NPM_BEFORE}" in command


def test_a_machine_without_npm_is_told_what_to_install(bin_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bin_folder / "npm").touch(0o755)
    with pytest.raises(RegistryUnreachable, match=r"install Node\.js"):
        ensure(NPM_PEER)


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm on this machine")
def test_an_npm_registry_that_does_not_answer_is_told_apart(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1/")
    with pytest.raises(RegistryUnreachable, match="1 attempts"):
        ensure(NPM_PEER, pauses=())
    assert not (folder / "toy-1.0").exists()


def test_the_installer_holds_the_lock_too(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """So that when this program is killed, the next one waits for what the installer still writes."""

    def command(peer: Peer, target: Path) -> list[str]:
        held = f"readlink /proc/self/fd/* | grep -qxF {shlex.quote(str(folder / '.toy-1.0.lock'))}"
        return ["/bin/sh", "-c", f'{held} && mkdir -p "$0"/bin && echo \'#!/bin/sh\' >"$0"/bin/toy', str(target)]

    monkeypatch.setitem(install_peers._COMMANDS, "pypi", command)
    assert ensure(PEER).exists()
