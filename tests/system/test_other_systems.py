"""Systems that have less than Linux, as far as that can be tried here: what they lack is hidden from the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kit.app_program import listening_server
from kit.exec_program import running
from kit.processes import DEADLINE_S
from treadle.testing import AppServerHarness

# What macOS does not have, and for Windows what that lacks besides, also modules. Modules of others are loaded before:
# they look at the platform, and bring parts for it that are not here.
HIDE = """
import asyncio, concurrent.futures.thread, getpass, multiprocessing, os, select, shutil, signal, socket, ssl, subprocess
import sys, tempfile, zoneinfo
import click, rich.console, websockets.client, websockets.server
hidden = set()
if sys.argv[1] == "win32":
    hidden |= {"ctypes", "fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
for name in hidden:
    sys.modules.pop(name, None)

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def no_proc(event, words):
    if event in ("open", "os.listdir", "os.scandir") and str(words[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", words[0])

sys.meta_path.insert(0, Hiding())
sys.addaudithook(no_proc)
missing = {os: ["fdatasync", "memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity", "O_PATH"]}
missing |= {select: ["epoll"], signal: ["pidfd_send_signal"], socket: ["MSG_CMSG_CLOEXEC", "SO_PEERCRED"]}
if sys.argv[1] == "darwin":
    import fcntl
    missing[fcntl] = ["F_ADD_SEALS", "F_OFD_GETLK", "F_OFD_SETLK", "F_SETPIPE_SZ"]
if sys.argv[1] == "win32":
    missing[os] += ["fchmod", "geteuid", "getuid", "getpgid", "killpg", "mkfifo", "openpty", "setsid", "uname"]
    missing[os] += ["O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK"]
    missing[socket] += ["AF_UNIX"]
    pair, unix = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda: pair(unix)  # which event loops need, and which Windows makes of TCP
    missing[select] += ["poll", "PIPE_BUF"]
    missing[signal] += ["SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "pthread_sigmask"]
for module, names in missing.items():
    for name in names:
        delattr(module, name)
sys.platform = sys.argv.pop(1)
"""


def tried(system: str, program: str, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-c", HIDE + program, system, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(params=["darwin", "win32"])
def system(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def test_the_package_is_imported_and_help_is_there(system: str) -> None:
    helped = tried(
        system,
        """
import treadle
from treadle import *
from treadle.cli import SERVE, main
for words in ([], *([name] for name in SERVE)):
    assert main([*words, "--help"]) == 0, words
assert main(["version"]) == 0
""",
    )
    assert "Run coding agents from Python" in helped
    assert helped.count("show this help message and exit") == 3


def test_every_command_has_its_help_or_needs_linux(system: str) -> None:
    said = tried(
        system,
        """
from treadle.cli import COMMANDS, main
codes = [main([name, "--help"]) for name in COMMANDS]
assert set(codes) <= {0, 2}
print("refused:", codes.count(2))
""",
    )
    assert f"refused: {sum('needs Linux' in line for line in said.splitlines())}\n" in said


def test_a_command_does_what_can_be_done_or_needs_linux(system: str, tmp_path: Path) -> None:
    said = tried(
        system,
        """
os.environ["TREADLE_HOME"] = sys.argv[1]
from treadle.cli import main
for words in ("exec hi", "run hi", "run -e claude hi", "review --uncommitted", "engines", "threads list", "hooks list",
              "projects list", "models", "config show", "config set model x", "mcp list", "skills list",
              "store vacuum", "doctor --no-engines", "completion zsh", "logout openai"):
    main(words.split())
""",
        str(tmp_path),
    )
    assert "bug in Treadle" not in said
    assert "not installed" not in said
    assert said.count("needs Linux") >= 7


def test_names_that_need_linux_say_so(system: str) -> None:
    said = tried(
        system,
        """
from importlib import import_module
from treadle.errors import needs_linux
for package in ("client", "execution", "hooks", "host", "runners", "testing", "types"):
    module = import_module(f"treadle.{package}")
    for name in module.__all__:
        try:
            getattr(module, name)
        except ImportError as error:
            assert f".{name} needs Linux" in str(error), error
            print("refused:", name)
""",
    )
    assert ("refused: Scheduler" in said) is (system == "win32")
    assert "refused: Codex\n" not in said


def test_the_sdk_drives_a_server_elsewhere(system: str, tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness) as server:
        for answer in ("one", "two", "x" * 300_000):
            harness.model.enqueue_assistant_message(answer)
        said = tried(
            system,
            """
import asyncio
from treadle import AsyncCodex, Codex, CodexConfig
config = CodexConfig(url=sys.argv[1])
with Codex(config) as codex:
    print(codex.thread_start().run("Hello").final_response)

async def main():
    async with AsyncCodex(config) as codex:
        print((await (await codex.thread_start()).run("Hello")).final_response)

asyncio.run(main())
with Codex(config) as codex:
    print(len(codex.thread_start().run("y" * 500_000).final_response))
""",
            server.url,
        )
    assert said.split() == ["one", "two", "300000"]


def test_commands_run_on_a_server_elsewhere(system: str, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        said = tried(
            system,
            """
import asyncio
from treadle import Environment, ExecParams

async def main():
    async with await Environment.connect(sys.argv[1]) as env:
        print((await env.run(["cat"], input="hello")).text)
        print(len(await env.files.read_text("/etc/passwd")) > 10)
        process = await env.start(ExecParams(process_id="p", argv=["sleep", "60"], cwd="/", env={}))
        await process.signal("kill")
        print(await process.wait())

asyncio.run(main())
""",
            server.url,
        )
    assert said.split() == ["hello", "True", "137"]


def test_what_needs_linux_says_so_and_what_to_do_instead(system: str) -> None:
    said = tried(
        system,
        """
import asyncio
from treadle import AppServer, AsyncCodex, Codex, CodexConfig, Environment, TreadleError
from treadle.cli import main

def refused(act):
    try:
        act()
    except TreadleError as error:
        print(error)
    else:
        raise SystemExit("not refused")

refused(Codex)
refused(lambda: Codex(CodexConfig(codex_bin="codex")))
refused(lambda: asyncio.run(AsyncCodex().__aenter__()))
refused(lambda: asyncio.run(Environment.connect()))
refused(lambda: asyncio.run(AppServer().__aenter__()))
assert main(["app-server"]) == 2
assert main(["exec-server"]) == 2
assert main(["exec", "look around"]) != 0

async def engine():
    from treadle.runners import TreadleRunner
    [end] = [event async for event in TreadleRunner().run("look around")]
    print(end.error)

if sys.platform == "darwin":  # on the other one there are no runners
    asyncio.run(engine())
""",
    )
    lines = [line for line in said.splitlines() if "needs Linux" in line]
    assert len(lines) == 8 + (system == "darwin"), said
    for line in lines:
        assert f"this is {system}" in line
        assert "container" in line


def test_unix_sockets_and_tokens_in_a_home_are_not_looked_for_where_there_are_none() -> None:
    said = tried(
        "win32",
        """
import asyncio
from treadle import Codex, CodexConfig, Environment, TreadleError
for act in (
    lambda: Codex(CodexConfig(url="unix:///nowhere")),
    lambda: asyncio.run(Environment.connect("unix:///nowhere")),
    lambda: Codex(CodexConfig(url="ws://127.0.0.1:9")),
):
    try:
        act()
    except TreadleError as error:
        print(error)
""",
    )
    assert said.count("this system (win32) has no unix sockets: use a server with ws:// or wss://") == 2
    assert "cannot connect to ws://127.0.0.1:9" in said
