#!/usr/bin/env python3
"""Install the real programs and libraries that the interop tests talk to, into a cache folder outside the repository.

    python scripts/install_peers.py [NAME...]        # all of them without a name

Prints the path of each, one per line, on standard output; progress goes to standard error. Exit codes:
0 installed, 1 the installation failed, 2 wrong usage, 3 the package registry does not answer or npm is missing.

The folder is `$TREADLE_PEERS`, else `$XDG_CACHE_HOME/treadle/peers`, else `~/.cache/treadle/peers`. To add a program,
add a line to `PEERS`; to add another kind of registry, add a function to `_COMMANDS`. A library is never installed into
the environment of this project: a child process gets its folder on its path.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

# A wheel of 140 MB on a slow line.
ATTEMPT_SECONDS: Final = 900.0
PAUSES: Final = (3.0, 15.0)
# A package from npm brings a hundred others in ranges of versions: those of this day, always.
NPM_BEFORE: Final = "2026-11-16"


@dataclass(frozen=True, slots=True)
class Peer:
    """One program or library: what to install, and where it then is inside its folder.

    From PyPI nothing is resolved: `requires` names everything else that is needed, pinned. npm resolves, as of
    `NPM_BEFORE`. A library has a `module`, which is imported to see that it works; the others are run.
    """

    name: str
    registry: Literal["pypi", "npm"]
    package: str
    version: str
    program: str
    requires: tuple[str, ...] = ()
    module: str | None = None
    # Whether the packages come along that npm calls optional: programs for a platform, hundreds of megabytes.
    optional: bool = True
    # What a program is given to see that it works; its input is empty.
    trial: str = "--version"

    @property
    def folder(self) -> str:
        # A library for Python may bring compiled modules, which fit one version of it only.
        fits = f"-{sys.implementation.cache_tag}" if self.module and self.registry == "pypi" else ""
        return f"{self.name}-{self.version}{fits}"


_SDK_REQUIRES: Final = (
    "pydantic==2.14.3",
    "pydantic-core==2.50.4",
    "annotated-types==0.8.0",
    "typing-extensions==4.16.0",
    "typing-inspection==0.4.5",
    "packaging==26.2",
)
_CLIENT_REQUIRES: Final = (
    *(requirement for requirement in _SDK_REQUIRES if not requirement.startswith("packaging")),
    "anyio==4.16.0",
    "h11==0.16.0",
    "httpcore2==2.16.0",
    "httpx2==2.16.0",
    "idna==3.20",
    "jiter==0.19.0",
    "sniffio==1.3.1",
    "truststore==0.10.5",
)
_ANTHROPIC_REQUIRES: Final = (*_CLIENT_REQUIRES, "docstring-parser==0.18.0", "opentelemetry-api==1.45.2")
# Of the official MCP package, as a server: with streamable HTTP, and what its schemas need.
_MCP_REQUIRES: Final = (
    *(requirement for requirement in _CLIENT_REQUIRES if not requirement.startswith(("jiter", "sniffio"))),
    "attrs==26.1.0",
    "cffi==2.1.1",
    "click==8.5.1",
    "cryptography==50.0.2",
    "jsonschema==4.26.0",
    "jsonschema-specifications==2025.9.1",
    "mcp-types==2.3.0",
    "opentelemetry-api==1.45.2",
    "pycparser==3.12",
    "pyjwt==2.15.1",
    "python-multipart==0.0.33",
    "referencing==0.37.0",
    "rpds-py==2026.9.1",
    "sse-starlette==3.7.0",
    "starlette==1.10.0",
    "uvicorn==0.54.0",
)
_MCP: Final = "mcp==2.3.0"
_TIME_REQUIRES: Final = (*_MCP_REQUIRES, _MCP, "tzdata==2026.6", "tzlocal==5.4.5")
_GIT_REQUIRES: Final = (*_MCP_REQUIRES, _MCP, "gitpython==3.2.1", "gitdb==4.0.12", "smmap==5.0.3")
# A notebook without a browser: what runs its cells, and the kernel that they run in.
_NOTEBOOK_REQUIRES: Final = (
    "asttokens==3.0.2",
    "attrs==26.1.0",
    "comm==0.2.3",
    "debugpy==1.8.22",
    "executing==2.3.0",
    "fastjsonschema==2.22.3",
    "ipykernel==7.4.0",
    "ipython-pygments-lexers==1.1.1",
    "ipython==9.18.1",
    "jedi==0.20.1",
    "jsonschema-specifications==2025.9.1",
    "jsonschema==4.26.0",
    "jupyter-client==8.10.0",
    "jupyter-core==5.9.1",
    "matplotlib-inline==0.2.2",
    "nbformat==5.11.1",
    "nest-asyncio2==1.7.4",
    "packaging==26.3",
    "parso==0.8.7",
    "pexpect==4.9.0",
    "platformdirs==4.14.5",
    "prompt-toolkit==3.0.53",
    "psutil==7.2.2",
    "ptyprocess==0.7.0",
    "pure-eval==0.2.4",
    "pygments==2.21.0",
    "python-dateutil==4.0.0",
    "pyzmq==27.3.0",
    "referencing==0.37.0",
    "rpds-py==2026.9.1",
    "stack-data==0.6.3",
    "tornado==6.6.1",
    "traitlets==5.16.1",
    "typing-extensions==4.16.0",
    "tzdata==2026.6",
    "wcwidth==0.9.4",
)
_ACP: Final = "@agentclientprotocol/codex-acp"
# Of its whole world only what speaks to codex, which needs one package of the dozens that it asks for.
_HERMES: Final = "agent.transports.codex_app_server_session"
PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("codex", "pypi", "openai-codex-cli-bin", "0.163.0", "codex_cli_bin/bin/codex"),
        # The same program in the version that newer clients are for, and whose terminal interface is driven.
        Peer("codex-npm", "npm", "@openai/codex", "0.166.0", "node_modules/.bin/codex"),
        Peer("codex-sdk", "pypi", "openai-codex", "0.163.0", "openai_codex", _SDK_REQUIRES, module="openai_codex"),
        # Its path is the folder that has node_modules in it. The program that it drives is the one from PyPI.
        Peer("codex-ts-sdk", "npm", "@openai/codex-sdk", "0.163.0", ".", module="@openai/codex-sdk"),
        # Clients of the app-server. The program that they drive is `codex-npm`, or ours.
        Peer(
            "codex-acp", "npm", "@agentclientprotocol/codex-acp", "2.6.0", "node_modules/.bin/codex-acp", optional=False
        ),
        Peer("hermes", "pypi", "hermes-agent", "0.19.0", "agent", ("pyyaml==6.0.3",), module=_HERMES),
        Peer("ai-sdk-codex", "npm", "ai-sdk-provider-codex-cli", "2.2.1", ".", module="ai-sdk-provider-codex-cli"),
        Peer("claude", "npm", "@anthropic-ai/claude-code", "2.1.197", "node_modules/.bin/claude"),
        Peer("opencode", "npm", "opencode-ai", "1.18.33", "node_modules/.bin/opencode"),
        Peer("pi", "npm", "@mariozechner/pi-coding-agent", "0.73.1", "node_modules/.bin/pi"),
        # Clients of the model APIs: their types judge our requests, their parsers our mocks.
        Peer("openai", "pypi", "openai", "3.49.0", "openai", _CLIENT_REQUIRES, module="openai"),
        Peer("anthropic", "pypi", "anthropic", "2.8.0", "anthropic", _ANTHROPIC_REQUIRES, module="anthropic"),
        # MCP servers: the official package, to make them with, and published ones.
        Peer("mcp", "pypi", "mcp", "2.3.0", "mcp", _MCP_REQUIRES, module="mcp.server"),
        Peer("mcp-time", "pypi", "mcp-server-time", "2026.10.19", "mcp_server_time", _TIME_REQUIRES, "mcp_server_time"),
        Peer("mcp-git", "pypi", "mcp-server-git", "2026.10.19", "mcp_server_git", _GIT_REQUIRES, "mcp_server_git"),
        Peer(
            "mcp-everything",
            "npm",
            "@modelcontextprotocol/server-everything",
            "2026.8.31",
            "node_modules/.bin/mcp-server-everything",
            trial="stdio",
        ),
        Peer(
            "mcp-filesystem",
            "npm",
            "@modelcontextprotocol/server-filesystem",
            "2026.8.31",
            "node_modules/.bin/mcp-server-filesystem",
            trial=".",
        ),
        # The published conformance tests, for clients and for servers. The newest that runs on Node.js 20.
        Peer("mcp-conformance", "npm", "@modelcontextprotocol/conformance", "0.1.13", "node_modules/.bin/conformance"),
        Peer("notebook", "pypi", "nbclient", "0.11.0", "nbclient", _NOTEBOOK_REQUIRES, module="nbclient"),
        # A mock of all these APIs that was written by others.
        Peer("aimock", "npm", "@copilotkit/aimock", "1.43.0", ".", module="@copilotkit/aimock"),
    )
}


class InstallFailed(Exception):
    """The registry answered, but the program could not be installed."""


class RegistryUnreachable(Exception):
    """The registry cannot be asked: it does not answer, or its client is not on this machine. Another time it may."""


def cache_folder() -> Path:
    if chosen := os.environ.get("TREADLE_PEERS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "treadle" / "peers"


def ensure(peer: Peer, *, pauses: Sequence[float] = PAUSES) -> Path:
    """The path of the program, or of the library's package, installed first if need be.

    Safe to call from several processes at once.
    """
    folder = cache_folder() / peer.folder
    program = folder / peer.program
    if program.exists():
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(f".{peer.folder}.lock")) as lock:
        if program.exists():
            return program
        partial = folder.with_name(f".{peer.folder}.partial")
        _install_with_retries(peer, partial, pauses, lock)
        _check(peer, partial)
        # A folder without its program is the remains of something that was never ours to keep.
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    _say(f"{peer.name} {peer.version} installed in {folder}")
    return program


def _install_with_retries(peer: Peer, target: Path, pauses: Sequence[float], lock: int) -> None:
    attempts = len(pauses) + 1
    for attempt in range(1, attempts + 1):
        _say(f"installing {peer.package} {peer.version} (attempt {attempt} of {attempts})")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        status, output = _run(_COMMANDS[peer.registry](peer, target), keep=(lock,))
        if status == 0:
            return
        if not is_network_failure(output):
            raise InstallFailed(f"{peer.package} {peer.version} cannot be installed:\n{_tail(output)}")
        if attempt < attempts:
            _say(f"the registry does not answer; next attempt in {pauses[attempt - 1]:.0f} s")
            time.sleep(pauses[attempt - 1])
    raise RegistryUnreachable(
        f"the registry did not answer in {attempts} attempts to install {peer.package} {peer.version};"
        f" check the network and run this again. Its last words:\n{_tail(output)}"
    )


def _pip_command(peer: Peer, target: Path) -> list[str]:
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        # A virtual environment made by uv has no pip of its own.
        venv = target.with_name(f".{target.name.strip('.')}.venv")
        subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True, stdout=sys.stderr)
        python = str(venv / "bin" / "python")
    return [
        *(python, "-m", "pip", "install", "--target", str(target), "--no-deps", "--only-binary", ":all:"),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--retries", "1", "--timeout", "30", *peer.requires, f"{peer.package}=={peer.version}"),
    ]


def _npm_command(peer: Peer, target: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise RegistryUnreachable(
            f"{peer.package} {peer.version} comes from npm, and there is no npm with Node.js on the PATH;"
            " install Node.js 20.6 or later and run this again"
        )
    # The programs are packages of their own for each platform, optional ones; a library needs none of them.
    omitted = ("--omit=optional",) if peer.module or not peer.optional else ()
    return [
        *(npm, "install", "--prefix", str(target), f"--before={NPM_BEFORE}", "--no-package-lock", "--no-audit"),
        *("--no-fund", "--no-update-notifier", "--loglevel=error", "--fetch-retries=0", "--fetch-timeout=60000"),
        *(*omitted, *peer.requires, f"{peer.package}@{peer.version}"),
    ]


_COMMANDS: Final[dict[str, Callable[[Peer, Path], list[str]]]] = {"pypi": _pip_command, "npm": _npm_command}

_NETWORK_SIGNS: Final = re.compile(
    r"connection broken by|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|Read timed out|ConnectionResetError"
    r"|ProxyError|Temporary failure in name resolution|IncompleteRead|Max retries exceeded|Network is unreachable"
    r"|\b(?:429|50[0234]) (?:Client|Server) Error|no answer within"
    r"|npm error code (?:E(?:NOTFOUND|AI_AGAIN|CONN[A-Z]+|TIMEDOUT|HOSTUNREACH|NETUNREACH|429|50[0234])"
    r"|ERR_SOCKET_TIMEOUT)",
)
_VERSIONS_SEEN: Final = re.compile(r"\(from versions: (?!none\))")


def is_network_failure(output: str) -> bool:
    """Whether an installer failed because the registry could not be reached, judged by what it printed.

    pip says "no matching distribution" in both cases; only when it lists versions has the registry really answered.
    """
    return _NETWORK_SIGNS.search(output) is not None and _VERSIONS_SEEN.search(output) is None


def _run(
    command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, keep: Sequence[int] = ()
) -> tuple[int, str]:
    """Run an installer, showing and keeping what it says; its whole process group ends with it.

    It has the files `keep` open too: when this program is killed, its lock is held until the installer has ended.
    """
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        pass_fds=keep,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        raw, _ = child.communicate(timeout=ATTEMPT_SECONDS)
        output = raw.decode(errors="replace")
    except subprocess.TimeoutExpired:
        output = f"no answer within {ATTEMPT_SECONDS:.0f} s"
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    _say(_tail(output))
    return child.returncode, output


def _check(peer: Peer, folder: Path) -> None:
    program = folder / peer.program
    if not program.exists():
        raise InstallFailed(f"the package was installed but has no {program.name}; its layout has changed")
    if peer.module is None:
        program.chmod(0o755)
        command = [str(program), peer.trial]
    elif peer.registry == "npm":
        command = ["node", "--input-type=module", "--eval", f"import {json.dumps(peer.module)}"]
    else:
        command = [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, sys.argv[1]); import {peer.module}",
            str(folder),
        ]
    # Even for its version a program may write into its home, or look there.
    with tempfile.TemporaryDirectory(prefix="treadle-peer-") as home:
        status, output = _run(command, cwd=folder, env={**os.environ, "HOME": home})
    if status != 0:
        raise InstallFailed(f"{peer.name} does not run on this machine (exit {status}):\n{_tail(output)}")


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is installing this; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-8:])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, *, pauses: Sequence[float] = PAUSES) -> int:
    parser = argparse.ArgumentParser(description="Install the real programs for the interop tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(PEERS)}; all without a name")
    names: list[str] = parser.parse_args(arguments).names
    if unknown := set(names) - set(PEERS):
        parser.error(f"no such program: {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}")
    for name in names or PEERS:
        try:
            print(ensure(PEERS[name], pauses=pauses), flush=True)
        except InstallFailed as error:
            _say(f"ERROR: {error}")
            return 1
        except RegistryUnreachable as error:
            _say(f"{'!' * 100}\nNOT INSTALLED: {error}\n{'!' * 100}")
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
