"""Containers: real ones where podman is installed and can run them, and a stand-in for what goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.small_image import write_image
from kit.ssh_server import write_program
from treadle.errors import ExecError
from treadle.execution import Environment, OpenedMachine, find_provider, path_from_uri

pytestmark = pytest.mark.anyio


async def opened(options: dict[str, Any], tmp_path: Path, name: str = "podman") -> OpenedMachine:
    return await find_provider(name).open("clean", options, str(tmp_path / "state"))


async def stopped(options: dict[str, Any], tmp_path: Path) -> bool:
    return await find_provider("podman").stop("clean", options, str(tmp_path / "state"))


async def connected(options: dict[str, Any], tmp_path: Path) -> Environment:
    return await Environment.connect(through=(await opened(options, tmp_path)).through)


# --- real ones -------------------------------------------------------------------------------------------------------


def podman(*words: str) -> str:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image in a storage of its own."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed here")
    folder = tmp_path_factory.mktemp("podman")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    runtime = "runc" if shutil.which("runc", path="/usr/sbin:/usr/bin") else "crun"
    (folder / "containers.conf").write_text(
        '[containers]\nnetns = "none"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
        f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        podman("import", str(write_image(folder / "image.tar")), "small")
        tried = subprocess.run(["podman", "run", "--rm", "small", "true"], capture_output=True, text=True, timeout=100)
        if tried.returncode != 0:
            pytest.skip(f"podman cannot run containers here: {tried.stderr.strip()[-200:]}")
        yield "small"
        podman("rm", "--all", "--force", "--time", "0")
        podman("rmi", "--all", "--force")


@pytest.fixture
async def project(image: str, tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "file").write_text("from here\n")
    yield folder
    podman("rm", "--all", "--force", "--time", "0")


async def test_an_image_becomes_a_machine_that_is_found_again(image: str, project: Path, tmp_path: Path) -> None:
    options = {"image": image, "folder": str(project)}
    way = await opened(options, tmp_path)
    assert way.workdir == str(project)
    async with await Environment.connect(through=way.through) as box:
        done = await box.run(["sh", "-c", "cat file; echo there > made; id -u"], cwd=project, timeout=60)
        assert done.text == "from here\n0\n"
        assert box.info.cwd is not None
        assert path_from_uri(box.info.cwd) == "/"
    assert (project / "made").read_text() == "there\n"
    first = podman("ps", "--quiet")
    podman("stop", "--time", "0", first)
    async with await connected(options, tmp_path) as box:  # it has what was copied in, and is started again
        assert (await box.run(["cat", "made"], cwd=project, timeout=60)).text == "there\n"
    assert podman("ps", "--quiet") == first
    assert await stopped(options, tmp_path)
    assert podman("ps", "--all", "--quiet") == ""
    assert not await stopped(options, tmp_path)


async def test_a_copied_folder_changes_there_alone_and_the_container_is_kept(
    image: str, project: Path, tmp_path: Path
) -> None:
    options = {"image": image, "folder": str(project), "workspace": "copy", "workdir": "/work/it", "keep": True}
    async with await connected(options, tmp_path) as box:
        done = await box.run(["sh", "-c", "echo more >> file; cat file"], cwd="/work/it", timeout=60)
        assert done.text == "from here\nmore\n"
    assert (project / "file").read_text() == "from here\n"
    assert await stopped(options, tmp_path)
    async with await connected(options, tmp_path) as box:
        assert (await box.run(["cat", "file"], cwd="/work/it", timeout=60)).text == "from here\nmore\n"


async def test_a_container_of_the_user_is_used_and_left_alone(image: str, project: Path, tmp_path: Path) -> None:
    theirs = podman("run", "--detach", "--name", "theirs", image, "sleep", "1000")
    options = {"container": "theirs"}
    async with await connected(options, tmp_path) as box:
        assert (await box.run(["uname"], cwd="/", timeout=60)).text == "Linux\n"
    assert await stopped(options, tmp_path)
    assert podman("ps", "--quiet", "--no-trunc") == theirs
    podman("stop", "--time", "0", "theirs")
    with pytest.raises(ExecError, match="theirs does not run: podman start theirs"):
        await opened(options, tmp_path)


# --- a stand-in ------------------------------------------------------------------------------------------------------

STAND_IN = """
echo "$@" >> {folder}/asked
case "$1" in
  ps) cat {folder}/containers 2>/dev/null || true;;
  run) echo made > {folder}/containers; echo made;;
  rm) rm {folder}/containers;;
  inspect) echo true;;
  start) ;;
  exec) {inside};;
  *) echo "Error: no such thing" >&2; exit 125;;
esac
"""
SAYS_VERSION = 'echo "codex-cli (treadle 0.1.0, which speaks its protocol)"'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def stand_in(programs: Path, inside: str, name: str = "podman") -> None:
    write_program(programs / name, STAND_IN.format(folder=programs, inside=inside))


def asked(programs: Path) -> list[str]:
    return (programs / "asked").read_text().splitlines()


@pytest.mark.parametrize("name", ["docker", "podman"])
async def test_both_programs_are_asked_in_the_same_way(programs: Path, tmp_path: Path, name: str) -> None:
    stand_in(programs, SAYS_VERSION, name)
    options = {"image": "python:3.12", "folder": str(tmp_path), "run_args": ["--network", "none"]}
    way = await opened(options, tmp_path, name)
    label = f"clean-{(tmp_path / 'state/name').read_text()}"
    assert way.through is not None
    assert way.through[0] == str(programs / name)
    assert way.through[1:] == ("exec", "-i", "made", "treadle", "exec-server", "--attach", label)
    assert asked(programs)[:2] == [
        f"ps --all --quiet --filter label=treadle.environment={label}",
        f"run --detach --label treadle.environment={label} --entrypoint sh --network none --volume "
        f"{tmp_path}:{tmp_path} python:3.12 -c trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done",
    ]
    assert await opened(options, tmp_path, name) == way
    assert sum(words.startswith("run") for words in asked(programs)) == 1
    assert await find_provider(name).stop("clean", options, str(tmp_path / "state"))
    assert asked(programs)[-1] == "rm --force --volumes made"


async def test_without_the_program_the_package_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ExecError, match=r"`docker` is not installed here: install docker\.io"):
        await opened({"image": "small"}, tmp_path, "docker")


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("echo 'exec: no such file' >&2; exit 127", "it has no `treadle` and no `python3` .*an image needs Treadle"),
        (
            'case "$*" in *SOABI*) echo cpython-399-musl;; *pip*) echo "no network" >&2; exit 1;; *) exit 1;; esac',
            r"its Python is cpython-399-musl, and pip cannot install Treadle there \(no network\)",
        ),
        (
            'case "$*" in *SOABI*) echo cpython-399-musl;; *pip*) ;; *) echo "no msgspec" >&2; exit 1;; esac',
            "Treadle does not run in the container made: no msgspec",
        ),
    ],
)
async def test_what_a_container_lacks_is_said(programs: Path, tmp_path: Path, inside: str, said: str) -> None:
    stand_in(programs, inside)
    with pytest.raises(ExecError, match=said):
        await opened({"image": "small"}, tmp_path)


async def test_what_the_program_says_is_passed_on(programs: Path, tmp_path: Path) -> None:
    write_program(programs / "docker", "echo 'Cannot connect to the Docker daemon. Is it running?' >&2; exit 1")
    with pytest.raises(ExecError, match=r"`docker ps` has failed: Cannot connect to the Docker daemon"):
        await opened({"image": "small"}, tmp_path, "docker")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of `image` and `container`"),
        ({"image": "a", "container": "b"}, "one of `image` and `container`"),
        ({"image": "--privileged"}, "no name of an image"),
        ({"container": "-it"}, "no name of an image"),
        ({"container": "b", "keep": True}, "are for a container that is made"),
        ({"image": "a", "folder": "relative"}, "absolute paths"),
        ({"image": "a", "folder": "/x:/etc"}, "absolute paths"),
        ({"image": "a", "workdir": "/x"}, "where a `folder` is"),
        ({"image": "a", "workspace": "mirror"}, "workspace"),
        ({"image": "a", "folder": "/nowhere/at/all"}, "is not there"),
    ],
)
async def test_options_that_cannot_be_used_are_refused(
    programs: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    stand_in(programs, SAYS_VERSION)
    with pytest.raises(ExecError, match=said):
        await opened(options, tmp_path)
    assert not (programs / "containers").exists()
