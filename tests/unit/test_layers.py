"""The layers: who may import whom, what a start loads, and which names are public."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import treadle
import treadle.execution

PACKAGE = Path(treadle.__file__).parent
PROJECT = PACKAGE.parents[1] / "pyproject.toml"
DEADLINE_S = 100


def _python(code: str) -> str:
    """What a fresh interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=PROJECT.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _modules_after(statement: str) -> set[str]:
    names = json.loads(_python(f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"))
    assert isinstance(names, list)
    return set(names)


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_name_of_a_file_stands_for_one_thing() -> None:
    """Found by its name, whoever looks. Back ends of one thing have the same names, next to what they share: `P/x.py`,
    `P/a/x.py`, `P/b/x.py`. Mock servers (`testing/wires`) are named after their wire API, the mirror of the
    official packages has its own names, and `runners.events` is an import path that users were given."""
    folders: dict[str, set[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name == "__init__.py" or not {"compat", "wires"}.isdisjoint(path.parts):
            continue
        if path != PACKAGE / "runners" / "events.py":
            folders.setdefault(path.name, set()).add(path.relative_to(PACKAGE).parent)
    strangers = {
        name: sorted(map(str, found))
        for name, found in folders.items()
        if len(found) > 1 and not any(found <= {top, *_below(found, top)} for top in _tops(found))
    }
    assert strangers == {}


def _below(folders: set[Path], top: Path) -> set[Path]:
    return {folder for folder in folders if folder.parent == top}


def _tops(folders: set[Path]) -> set[Path]:
    return {top for folder in folders for top in (folder, folder.parent) if top != Path()}


# --- layers ----------------------------------------------------------------------------------------------------------


def _lint(config: Path) -> str:
    return _python(f"from importlinter.cli import lint_imports\nprint(lint_imports({str(config)!r}, no_cache=True))")


def test_modules_import_only_from_their_own_layer_or_below() -> None:
    report = _lint(PROJECT)
    assert report.splitlines()[-1] == "0", report


def test_a_broken_layer_would_be_found(tmp_path: Path) -> None:
    """The same check upside down: it must be able to fail."""
    upside_down = tmp_path / "importlinter.toml"
    upside_down.write_text(
        '[tool.importlinter]\nroot_package = "treadle"\n[[tool.importlinter.contracts]]\nname = "upside down"\n'
        'type = "layers"\nlayers = ["treadle.errors", "treadle.execution"]\n'
    )
    report = _lint(upside_down)
    assert report.splitlines()[-1] != "0", report


def test_every_package_has_its_layer() -> None:
    contract = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"][0]
    listed = {name.strip() for layer in contract["layers"] for name in layer.replace("|", ":").split(":")}
    existing = {
        f"treadle.{path.stem}"
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.name.startswith("_")
    }
    assert existing == listed


# --- what a start loads ----------------------------------------------------------------------------------------------


def test_import_of_the_package_loads_next_to_nothing() -> None:
    loaded = _modules_after("import treadle")
    assert not loaded & {"asyncio", "msgspec", "dataclasses", "logging"}
    assert {name for name in loaded if name.startswith("treadle")} == {"treadle", "treadle._version"}


HEAVY = {
    "click",
    "ctypes",
    "email",
    "http.client",
    "httpx2",
    "multiprocessing",
    "pydantic",
    "rich",
    "unittest",
    "urllib.request",
    "uvloop",
    "websockets",
}
# The WebSocket library, and what it loads to know its own version.
WITH_A_SOCKET = {"websockets", "email"}
LATER = {
    "treadle.execution.server.http_requests",
    "treadle.execution.remote_backend",
    "treadle.execution.sandbox.bubblewrap",
    "treadle.execution.sandbox.confinement",
    "treadle.execution.sandbox.landlock",
    "treadle.execution.sandbox.launcher",
    "treadle.execution.sandbox.seccomp",
}


@pytest.mark.parametrize("transport", ["listen", "stdio"])
def test_server_loads_only_what_it_needs_to_start(transport: str) -> None:
    loaded = _modules_after(f"import treadle.cli.exec_server, treadle.execution.server, treadle.transport.{transport}")
    assert "treadle.execution.server" in loaded
    assert not loaded & (HEAVY - WITH_A_SOCKET if transport == "listen" else HEAVY)
    assert ("websockets" in loaded) is (transport == "listen")
    assert not loaded & LATER
    for name in LATER:
        importlib.import_module(name)  # a name that has moved would make the check above idle


def test_names_of_tools_are_known_without_what_runs_them() -> None:
    """A client asks for them, also one whose server is another program."""
    assert not {name for name in _modules_after("import treadle.tools.specs") if name.startswith("treadle.agent")}
    loaded = _modules_after("import treadle.agent.tools.built_in")
    assert not {name for name in loaded if name.startswith(("treadle.execution", "treadle.llm", "treadle.store"))}
    assert not loaded & {"asyncio", "treadle.agent.turn.turn", "treadle.agent.tools.command_call"}
    importlib.import_module("treadle.agent.tools.command_call")  # as above


@pytest.mark.parametrize(
    "command", ["app_server", "exec.exec_command", "run.run_command", "run.engines", "checkup.doctor"]
)
def test_what_draws_is_loaded_when_something_is_drawn(command: str) -> None:
    loaded = _modules_after(f"import treadle.cli.{command}")
    assert "rich" not in loaded
    drawn = _modules_after("import sys, treadle.cli.terminal as t; t.make_console(sys.stderr)")
    assert "rich" in drawn  # a name that has moved would make the check above idle


# --- public names ----------------------------------------------------------------------------------------------------


def test_public_names_of_the_package() -> None:
    assert treadle.__all__ == [
        "AppServer",
        "AppServerConfig",
        "ApprovalDecision",
        "ApprovalMode",
        "ApprovalRequest",
        "ArgumentError",
        "ArgumentTypeError",
        "ArgumentValueError",
        "AsyncChatgptLoginHandle",
        "AsyncCodex",
        "AsyncDeviceCodeLoginHandle",
        "AsyncThread",
        "AsyncTurnHandle",
        "ChatgptLoginHandle",
        "Codex",
        "CodexConfig",
        "CodexError",
        "CodexRpcError",
        "ConfigurationError",
        "ConfigurationWarning",
        "DeviceCodeLoginHandle",
        "Environment",
        "EventsLost",
        "ExecError",
        "ExecParams",
        "ExecTimeout",
        "ExternalMessage",
        "ImageInput",
        "Input",
        "InputItem",
        "InternalRpcError",
        "InvalidParamsError",
        "InvalidRequestError",
        "JsonRpcError",
        "LocalImageInput",
        "MentionInput",
        "MethodNotFoundError",
        "MissingMetadata",
        "Notification",
        "OutputError",
        "ParseError",
        "RequestTimeout",
        "RetryLimitExceededError",
        "RunInput",
        "RunResult",
        "Sandbox",
        "ServerBusyError",
        "SkillInput",
        "TextInput",
        "Thread",
        "TokensUsed",
        "Tool",
        "ToolCallError",
        "TransportClosedError",
        "TreadleError",
        "TurnConflict",
        "TurnFailed",
        "TurnHandle",
        "TurnLimitReached",
        "TurnResult",
        "UserInputRequest",
        "__version__",
        "async_retry_on_overload",
        "is_retryable_error",
        "retry_on_overload",
    ]
    assert dir(treadle) == sorted(treadle.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        treadle.no_such_name  # noqa: B018


def test_public_names_of_execution() -> None:
    assert treadle.execution.__all__ == [
        "Closed",
        "CompletedRun",
        "EnvPolicy",
        "Environment",
        "EventStream",
        "Evicted",
        "ExecError",
        "ExecParams",
        "ExecTimeout",
        "Exited",
        "Failed",
        "Output",
        "OutputChunk",
        "OutputStream",
        "Process",
        "ProcessEvent",
        "ProcessInfo",
        "ReadResponse",
        "Sandbox",
        "WriteResult",
        "WriteStatus",
    ]


@pytest.mark.parametrize(
    "module", ["treadle", "treadle.client", "treadle.execution", "treadle.rpc", "treadle.transport", "treadle.types"]
)
def test_every_public_name_resolves(module: str) -> None:
    package = importlib.import_module(module)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert len(set(package.__all__)) == len(package.__all__)


def test_names_of_the_package_are_those_of_their_homes() -> None:
    assert treadle.Environment is treadle.execution.Environment
    assert treadle.ExecParams is treadle.execution.ExecParams
    assert issubclass(treadle.ExecTimeout, treadle.ExecError)
    assert issubclass(treadle.ExecError, treadle.TreadleError)
