"""The app-servers under test as child processes: how each is started, found and ended.

All are started the same way, with a home that holds the same settings. Whatever happens in between, nothing that one
of them started outlives its `running` block.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import family
from bench.app_server import row_counter
from bench.app_server.client import Client
from bench.servers import STOP_SECONDS, BenchError, Server

_ARGUMENTS: Final = ("app-server", "--listen", "stdio://")
_KEPT: Final = ("PATH", "LANG", "PYTHONPATH", "PYTHONHOME", "TMPDIR")
_CONFIG: Final = """\
model = "mock-model"
approval_policy = "never"
sandbox_mode = "danger-full-access"
model_provider = "mock"

[model_providers.mock]
name = "mock"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@dataclass(frozen=True, slots=True)
class Running:
    server: Server
    client: Client
    pid: int
    home: Path
    start_seconds: float
    """From just before the program was started to the answer of `initialize`."""


def ours() -> Server:
    from treadle import __version__

    # The program as it is installed: what users and SDKs start.
    program = Path(sys.executable).with_name("treadle")
    start = (str(program),) if program.exists() else (sys.executable, "-m", "treadle")
    return Server("ours", f"treadle {__version__}", (*start, *_ARGUMENTS))


def counted() -> Server:
    """Ours, with the rows counted that it writes."""
    # By the path of the file: it is started in a folder from which the benchmark cannot be imported.
    start = (sys.executable, "-P", row_counter.__file__)
    return Server("ours", ours().version, (*start, *_ARGUMENTS))


def real() -> Server:
    """The real one, installed first if need be; raises what `scripts.install_peers.ensure` raises."""
    from scripts.install_peers import PEERS, ensure

    program = ensure(PEERS["codex"])
    shown = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, timeout=60)
    return Server("real", shown.stdout.strip(), (str(program), *_ARGUMENTS))


def null() -> Server:
    return Server("null", "a server that does nothing", (sys.executable, "-m", "bench.app_server.null", *_ARGUMENTS))


def config_for(base_url: str) -> str:
    """Settings for a model at this address."""
    return _CONFIG.format(base_url=base_url)


@contextmanager
def home_for(model_url: str, deltas: int = 1) -> Iterator[Path]:
    """A folder with settings; a server that is started on it again finds its threads."""
    with TemporaryDirectory(prefix="treadle-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        (home / "work").mkdir(parents=True)
        (home / "config.toml").write_text(config_for(f"{model_url}/d{deltas}"))
        yield home


@contextmanager
def running(server: Server, home: Path) -> Iterator[Running]:
    """A started and initialized server; it and all its descendants end with the block."""
    log = home.parent / "stderr"
    with log.open("wb") as errors:
        began = time.perf_counter()
        child = _launch(server, home, errors.fileno())
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        client = Client(child.stdin.fileno(), child.stdout.fileno())
        client.initialize()
        yield Running(server, client, child.pid, home, time.perf_counter() - began)
    except (BenchError, OSError) as error:
        state = "still runs" if child.poll() is None else f"ended with {child.returncode}"
        said = log.read_text(errors="replace")[-2000:] or "nothing"
        raise BenchError(f"{server.version} could not be measured: {error}; it {state}, and said: {said}") from error
    finally:
        _stop(child)


def _launch(server: Server, home: Path, errors: int) -> subprocess.Popen[bytes]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return subprocess.Popen(
        server.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        # The null server is not installed: it is found from the folder of the repository.
        cwd=home / "work" if server.name != "null" else Path(__file__).parents[2],
        env=kept | {"HOME": str(home), "CODEX_HOME": str(home), "CODEX_APP_SERVER_DISABLE_MANAGED_CONFIG": "1"},
        bufsize=0,
        start_new_session=True,
    )


def _stop(child: subprocess.Popen[bytes]) -> None:
    everyone = family.members(child.pid)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.stdout.close()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"bench: {child.args!r} did not end when its client left; it is killed", file=sys.stderr)
    finally:
        family.kill(everyone)
        child.wait()
