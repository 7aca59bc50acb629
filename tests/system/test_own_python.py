"""Python modules that a project has, or that a confined command wrote, run neither in what we start nor in a user's
process that has a server of ours.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import treadle
from kit.sandboxes import usable
from system.agent.scene import shell
from treadle.cli import check_sandbox
from treadle.client import AsyncCodex
from treadle.errors import ExecError
from treadle.execution import Environment, search
from treadle.host import server_config
from treadle.own_python import _DEPENDENCIES, PINNED, isolated_python, treadle_command
from treadle.runners import CompletedEvent, TreadleRunner
from treadle.testing import AppServerHarness, ToolCall

pytestmark = pytest.mark.anyio
PACKAGE = Path(treadle.__file__).parent
DEADLINE_S = 60.0
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(24)


# --- what we start ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a module of every name, which nobody writes to: some 700 names, each for both of its folders."""
    folder = tmp_path_factory.mktemp("traps") / "project"
    (folder / "lib").mkdir(parents=True)
    for name in {*PINNED, *sys.builtin_module_names, "sitecustomize", "usercustomize", "supervisor_program"}:
        (folder / f"{name}.py").write_text(f"open({str(folder.parent / 'ran')!r}, 'a').write({name!r} + chr(10))\n")
        (folder / "lib" / f"{name}.py").hardlink_to(folder / f"{name}.py")
    (folder / "pyvenv.cfg").write_text(f"home = {folder}\n")
    (folder / "evil.pth").write_text(f"import os; open({str(folder.parent / 'ran')!r}, 'a').write('pth')\n")
    return folder


@pytest.fixture
def project(traps: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a module of every name, which variables lead to as well. `ran` beside it says what ran."""
    monkeypatch.setenv("PYTHONPATH", f".:{traps}:{traps / 'lib'}:lib")
    monkeypatch.setenv("PYTHONSTARTUP", str(traps / "lib" / "site.py"))
    monkeypatch.setenv("PYTHONUSERBASE", str(traps))
    monkeypatch.chdir(traps)
    yield traps
    (traps.parent / "ran").unlink(missing_ok=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TREADLE_HOME", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


async def _run_engine(project: Path) -> None:
    async for event in TreadleRunner(cwd=str(project), extra_args=["-c", "offline=true"]).run("hi"):
        if isinstance(event, CompletedEvent):
            assert event.ok, event


async def _host_server(project: Path) -> None:
    config = server_config(None, provider=None, api_key=None, base_url=None)
    async with AsyncCodex(replace(config, cwd=str(project))) as codex:
        assert await (await codex.thread_start()).run("hi")


async def _harness_server(project: Path) -> None:
    with AppServerHarness(project.parent / "harness") as harness:
        done = subprocess.run(harness.command(), cwd=project, input=b"", capture_output=True, check=False)
        assert done.returncode == 0


async def _command(project: Path) -> None:
    async with await Environment.connect(None) as machine:
        assert (await machine.run(["true"], cwd=str(project))).exit_code == 0


async def _search(project: Path) -> None:
    async with await Environment.connect(None) as machine:
        assert await search(machine, "pybase64", [(str(project), str(project))])


async def _sandbox(project: Path) -> None:
    usable("landlock")
    assert check_sandbox().verdict != "failed"


STARTS = [_run_engine, _host_server, _harness_server, _command, _search, _sandbox]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("start", STARTS)
async def test_a_program_of_ours_runs_no_module_of_the_project(
    start: Callable[[Path], Awaitable[None]], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = project.parent / "ran"
    monkeypatch.setenv("TREADLE_SANDBOX", "landlock" if start is _sandbox else "")
    async with asyncio.timeout(DEADLINE_S):
        await start(project)
    assert not ran.exists(), ran.read_text()


def test_python_m_treadle_does_not_look_into_the_working_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python itself does until our first line, so the standard library is left out."""
    monkeypatch.delenv("PYTHONPATH")
    ran, folder = project.parent / "ran", tmp_path / "project"
    shutil.copytree(project, folder, copy_function=os.link)
    for name in {"treadle", "sitecustomize", "usercustomize", *sys.stdlib_module_names}:
        (folder / f"{name}.py").unlink()
    for line in (["-c", "import msgspec"], ["-m", "treadle", "exec", "hi"]):
        ran.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, *line], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert ran.exists() is (line[0] == "-c")  # the trap works


def test_a_child_finds_what_this_process_found_on_a_path_of_its_own(tmp_path: Path) -> None:
    """As with `pip install --target`, or the folders of a user, which an isolated Python does not look into."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("treadle", *_DEPENDENCIES):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found = Path(spec.origin) if spec.submodule_search_locations is None else Path(spec.origin).parent
            (packages / found.name).symlink_to(found)
    code = "import subprocess, treadle.own_python as own; subprocess.run(own.treadle_command('--version'), check=True)"
    bare = {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"]}
    base = os.path.realpath(sys.executable)  # without the packages of the virtual environment
    done = subprocess.run([base, "-c", code], env=bare, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "treadle" in done.stdout, done.stderr


def test_a_program_without_an_interpreter_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ExecError, match="needs a Python interpreter"):
        treadle_command("app-server")
    assert isolated_python("-c", "", program="/usr/bin/python3")[:2] == ["/usr/bin/python3", "-I"]


def test_nobody_starts_python_in_another_way() -> None:
    """`landlock` chooses between interpreters, the check-up shows which one it is, and a container has its own."""
    known = {"own_python.py", "execution/sandbox/landlock.py", "cli/checkup/checks.py"}
    known.add("execution/providers/containers.py")
    named = re.compile(r"""\bsys\.executable\b|_base_executable|["']-m["'], ["']\w+["']|["']\S*python3["']""")
    assert {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if named.search(path.read_text())} == known


# --- a server in a user's process ------------------------------------------------------------------------------------

BOT = """
import importlib.util, json, os, sys
from treadle import ApprovalMode, Codex, CodexConfig, Sandbox

def main(way):
    override = json.loads(os.environ["SERVER"]) if way == "child" else None
    with Codex(CodexConfig(cwd=os.getcwd(), launch_args_override=override)) as codex:
        thread = codex.thread_start(sandbox=Sandbox.workspace_write, approval_mode=ApprovalMode.deny_all)
        thread.run("write them")
        assert os.path.exists("helper.py"), "the command did not run"
        thread.run("look at the picture")
    import helper  # what the user wants to have is found
    from treadle.own_python import PINNED
    from treadle.runners.engine_registry import engine_names
    for name in sorted(PINNED - set(sys.modules)):
        found = importlib.util.find_spec(name)
        if found is not None and (found.origin or "").startswith(os.getcwd()):
            print("found", name)
    print("engines", engine_names())

main(sys.argv[1])
"""
PLANT = """while read name; do echo "open('ran', 'a').write('$name ')" > $name.py; done < names; echo 1 > helper.py
mkdir parrot-1.0.dist-info; printf 'Metadata-Version: 2.1\\nName: parrot\\n' > parrot-1.0.dist-info/METADATA
printf '[treadle.engines]\\nparrot = parrot:ENGINE\\n' > parrot-1.0.dist-info/entry_points.txt"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[AppServerHarness]:
    """A model that lets a command write a module of every name into the workspace, and then looks at a picture."""
    with AppServerHarness(tmp_path) as harness:
        (harness.workspace / "bot.py").write_text(BOT)
        (harness.workspace / "pybase64.py").write_text("open('ran', 'a').write('it was there from the start')")
        (harness.workspace / "names").write_text("".join(f"{name}\n" for name in sorted({*PINNED, "parrot"})))
        (harness.workspace / "picture.png").write_bytes(PIXEL)
        harness.model.enqueue_calls(ToolCall("exec_command", shell(PLANT, yield_time_ms=30_000)))
        harness.model.enqueue_assistant_message("done")
        harness.model.enqueue_calls(ToolCall("view_image", {"path": "picture.png"}))
        harness.model.enqueue_assistant_message("seen")
        yield harness


@pytest.mark.parametrize(
    ("line", "way"), [(["bot.py"], "in process"), (["-c", "import bot"], "in process"), (["-m", "bot"], "child")]
)
def test_what_a_confined_command_wrote_is_not_imported(stage: AppServerHarness, line: list[str], way: str) -> None:
    environment = {**stage.environ(), "SERVER": json.dumps(stage.command())}
    done = subprocess.run(
        [sys.executable, *line, way],
        cwd=stage.workspace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (stage.workspace / "ran").exists(), (stage.workspace / "ran").read_text()
    assert "found" not in done.stdout
    assert "parrot" not in done.stdout


PROCESS = """
import asyncio, json, os, sys
from treadle.execution import Environment
from treadle.execution.sandbox.sandbox_modes import sandbox_for
from treadle.protocol.app.settings import WorkspaceWriteSandboxPolicy

async def main():
    async with await Environment.connect(json.loads(sys.argv[1])) as machine:
        sandbox = sandbox_for(WorkspaceWriteSandboxPolicy(), os.getcwd(), protect=False)
        code = "for name in ('pybase64', 'colorsys'): open(name + '.py', 'w').write('1/0')"
        done = await machine.run(["python3", "-c", code], cwd=os.getcwd(), sandbox=sandbox)
        assert done.exit_code == 0, done
asyncio.run(main())
assert os.path.exists("colorsys.py") and "colorsys" not in sys.modules
import pybase64, colorsys
"""


@pytest.mark.parametrize("server", [None, treadle_command("exec-server", "--listen", "stdio://")])
def test_the_same_for_who_runs_commands_without_an_agent(tmp_path: Path, server: list[str] | None) -> None:
    """What an exec-server does in process, and a client of one on this machine."""
    (tmp_path / "program.py").write_text(PROCESS)
    done = subprocess.run(
        [sys.executable, "program.py", json.dumps(server)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


PROGRAM = """
import asyncio, os
from treadle import AsyncCodex, CodexConfig
from treadle.own_python import treadle_command
from treadle.runners import TreadleRunner

async def sdk():
    async with AsyncCodex(CodexConfig(launch_args_override=tuple(treadle_command("app-server")))):
        pass

async def engine():
    assert [event async for event in TreadleRunner(cwd=os.getcwd(), extra_args=["-c", "offline=true"]).run("hi")]

asyncio.run({way}())
open("colorsys.py", "x").write("1/0")  # as what was started could have done
import colorsys
"""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("way", ["sdk", "engine"])
def test_whatever_may_write_is_started_with_pinned_imports(tmp_path: Path, way: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("{way}", way))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr


PATH = """
import importlib.util, os, pathlib, sys
from treadle import own_python
lib = os.path.abspath("lib")
for folder in (lib, "brotli"):
    os.mkdir(folder)
open("uvloop.txt", "x").close()
sys.path[1:1] = [lib, pathlib.Path(lib), b"lib"]
own_python.pin_imports()

# what a command may do: a link in the place of a folder, and files that make modules of what is there
os.rename(lib, "evil")
os.symlink("evil", lib)
for module in ("evil/trio", "brotli/__init__", "uvloop", "zstandard"):
    open(f"{module}.py", "x").close()
own_python._DEPENDENCIES = ("trio", "brotli", "uvloop", "zstandard")
for name in own_python._DEPENDENCIES:
    found = importlib.util.find_spec(name)
    assert found is None or not found.origin.startswith(os.getcwd()), found
assert os.getcwd() not in "".join(own_python.treadle_command()), "a child would look there"
own_python.plug_ins("treadle.engines")
"""


def test_a_folder_of_the_path_offers_what_it_had_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PATH)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr


IMPORT = re.compile(r"\s*(?:import|from)\s+\w")


def _requirements(name: str) -> Iterator[importlib.metadata.Distribution]:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another system
        package = importlib.metadata.distribution(name)
        yield package
        for line in package.requires or ():
            if "extra ==" not in line:
                (other,) = re.findall(r"^[\w.-]+", line)
                yield from _requirements(other)


# Imported at the start only, or by name by who means it.
NOT_PINNED = {"__main__", "pip", "sitecustomize", "test", "usercustomize"}


def test_all_that_treadle_and_its_dependencies_import_is_pinned() -> None:
    files = list(PACKAGE.rglob("*.py"))
    library = Path(os.__file__).parent
    apart = {"idlelib", "lib2to3", "site-packages", "dist-packages", "test", "tests"}
    files += [path for path in library.rglob("*.py") if not apart & set(path.relative_to(library).parts)]
    for package in _requirements("treadle"):
        files += [Path(str(package.locate_file(file))) for file in package.files or () if file.suffix == ".py"]
    imported: set[str] = set()
    for path in files:
        text = path.read_text("utf-8", "replace")
        # Only a file with a line that looks like an import of something new is parsed: the others hold no news.
        seen = {line.split()[1].partition(".")[0] for line in text.splitlines() if IMPORT.match(line)}
        if seen <= PINNED | imported:
            imported |= seen
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.partition(".")[0])
    assert {"msgspec", "brotli", "uuid", "org"} <= imported
    assert imported - PINNED <= NOT_PINNED
    sysconfig.get_config_vars()
    assert {name for name in sys.modules if name.startswith("_sysconfigdata")} <= PINNED
