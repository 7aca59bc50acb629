"""`Stage`: what a scenario is given. Runs in the child interpreter, which has the official SDK on its path.

Owns the home of the server, the mock model, the SDK client in its two faces, and the record of what went over the wire.
A scenario is written once for both faces: `await now(x)` takes a value or an awaitable, `Events` either kind of stream;
and once for both SDKs, which is a matter of `package`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from interop.sdk import package
from interop.sdk.package import Package
from treadle.testing import MockModel, RecordedRequest

MODEL: Final = "gpt-5.5"
WAIT_S: Final = 30.0
_CONFIG: Final = """\
model = "{model}"
model_provider = "mock"
approval_policy = "{approval_policy}"
sandbox_mode = "{sandbox_mode}"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "{base_url}"
wire_api = "responses"
requires_openai_auth = {auth}
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
"""


@dataclass
class Wire:
    """Every message between the SDK and the server, in memory and, as it happens, in a file."""

    file: TextIO
    messages: list[tuple[Literal[">", "<"], dict[str, Any]]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)  # guards the file and the messages

    def add(self, direction: Literal[">", "<"], message: dict[str, Any]) -> None:
        with self.changed:
            self.messages.append((direction, message))
            self.file.write(f"{direction} {json.dumps(message)}\n")
            self.file.flush()
            self.changed.notify_all()

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The parameters of each request or notification of the SDK with this method."""
        return [message["params"] for way, message in self.messages if way == ">" and message.get("method") == method]

    def requests(self) -> list[tuple[str, Any]]:
        """Method and params of all that the SDK asked, in order."""
        return [
            (message["method"], message.get("params"))
            for way, message in self.messages
            if way == ">" and "method" in message and "id" in message
        ]

    def received(self, method: str) -> list[dict[str, Any]]:
        """The parameters of each request or notification of the server with this method."""
        return [message["params"] for way, message in self.messages if way == "<" and message.get("method") == method]

    def results(self, method: str) -> list[dict[str, Any]]:
        """What the server answered to each request with this method, where it was no error."""
        answers = {
            message["id"]: message["result"] for way, message in self.messages if way == "<" and "result" in message
        }
        asked = [message["id"] for way, message in self.messages if way == ">" and message.get("method") == method]
        return [answers[request_id] for request_id in asked if request_id in answers]

    async def wait_for(self, method: str, count: int = 1) -> dict[str, Any]:
        """Wait until the server has sent this that often: some things the SDK offers no way to wait for."""
        return await asyncio.to_thread(self._wait_for, method, count)

    def _wait_for(self, method: str, count: int) -> dict[str, Any]:
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.received(method)) >= count, WAIT_S):
                raise TimeoutError(f"{method} was received {len(self.received(method))} times, not {count} times")
            return self.received(method)[count - 1]

    async def wait_for_answers(self, prefix: str, count: int) -> list[dict[str, Any]]:
        """Wait until that many requests, whose ids start so, were answered; the answers or errors."""
        return await asyncio.to_thread(self._wait_for_answers, prefix, count)

    def _wait_for_answers(self, prefix: str, count: int) -> list[dict[str, Any]]:
        def answers() -> list[dict[str, Any]]:
            received = (message for way, message in self.messages if way == "<" and "method" not in message)
            return [message for message in received if str(message["id"]).startswith(prefix)]

        with self.changed:
            if not self.changed.wait_for(lambda: len(answers()) >= count, WAIT_S):
                raise TimeoutError(f"{len(answers())} of {count} requests were answered")
            return answers()


@dataclass
class Stage:
    package: Package
    program: str
    folder: Path
    face: Literal["sync", "async"]
    wire: Wire
    model: MockModel

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def configure(
        self,
        *,
        approval_policy: str = "never",
        sandbox_mode: str = "danger-full-access",
        auth: bool = False,
        base_url: str | None = None,
    ) -> None:
        """Write `config.toml`; a scenario that wants other settings than these calls it before `codex`."""
        self.home.mkdir(exist_ok=True)
        # Of its own: the paths of a diff begin where the repository does, and somebody may have one further up.
        (self.workspace / ".git").mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(
            model=MODEL,
            approval_policy=approval_policy,
            sandbox_mode=sandbox_mode,
            base_url=base_url or self.model.base_url,
            auth="true" if auth else "false",
        )
        (self.home / "config.toml").write_text(text)

    def config(self, **changes: Any) -> Any:
        settings: dict[str, Any] = {
            "codex_bin": self.program,
            "cwd": str(self.workspace),
            "env": {"CODEX_HOME": str(self.home), "CODEX_APP_SERVER_DISABLE_MANAGED_CONFIG": "1", "RUST_LOG": "warn"},
        }
        return package.public(self.package).CodexConfig(**{**settings, **changes})

    def make_pipe(self) -> None:
        """A named pipe in the workspace: a command that reads from it runs until `feed_pipe`."""
        os.mkfifo(self.workspace / "pipe")

    def feed_pipe(self, line: str) -> None:
        (self.workspace / "pipe").write_text(line + "\n")

    def close(self) -> None:
        """End what may still wait for the pipe: such a command can outlive its turn, and even its server."""
        if (self.workspace / "pipe").exists():
            os.close(os.open(self.workspace / "pipe", os.O_RDWR))

    def thread(self, codex: Any, thread_id: str) -> Any:
        """The public object for a thread that the low-level client has started."""
        sdk = package.public(self.package)
        return sdk.Thread(codex._client, thread_id) if self.face == "sync" else sdk.AsyncThread(codex, thread_id)

    @asynccontextmanager
    async def codex(
        self, approve: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None, **changes: Any
    ) -> AsyncIterator[Any]:
        """A `Codex` or an `AsyncCodex` with a server of its own, on the home of this stage.

        `approve` answers the requests of the server; the public classes of the official SDK have no such parameter.
        """
        config, sdk = self.config(**changes), package.public(self.package)
        if self.face == "sync":
            with sdk.Codex(config) as codex:
                if approve is not None:
                    package.answer_with(codex._client, approve)
                yield codex
                self._hasten(codex._client)
        else:
            async with sdk.AsyncCodex(config) as codex:
                if approve is not None:
                    package.answer_with(codex._client, approve)
                yield codex
                self._hasten(codex._client)

    def _hasten(self, client: Any) -> None:
        """The real server needs five seconds to end when it has had a thread; what it knows is on disk by then."""
        if Path(self.program).name == "codex":
            package.kill_server(client)


async def now(value: Any) -> Any:
    """The value of a call, of whichever face."""
    return await value if inspect.isawaitable(value) else value


class Events:
    """The notifications of a turn, one by one."""

    def __init__(self, turn: Any) -> None:
        self._stream = turn.stream()
        self.seen: list[Any] = []

    async def next(self) -> Any:
        is_async = hasattr(self._stream, "__anext__")
        event = await anext(self._stream) if is_async else next(self._stream)
        self.seen.append(event)
        return event

    async def until(self, method: str) -> Any:
        """Read up to the next notification with this method, and return it."""
        while (event := await self.next()).method != method:
            pass
        return event

    async def rest(self) -> list[Any]:
        """Read to the end of the turn; all notifications since the start."""
        await self.until("turn/completed")
        return self.seen


def items_of(events: list[Any], method: str = "item/completed") -> list[Any]:
    return [event.payload.item.root for event in events if event.method == method]


def text_of(events: list[Any]) -> str:
    """The deltas of the agent's messages, joined."""
    return "".join(event.payload.delta for event in events if event.method == "item/agentMessage/delta")


def roles_of(request: RecordedRequest, text: str) -> list[str]:
    """Who says this to the model."""
    return [
        role for role in ("developer", "user", "assistant") if any(text in said for said in request.input_texts(role))
    ]


def record(stage: Callable[[], Stage | None]) -> None:
    """Make every client of this process write to the record of the current stage."""

    def note(direction: Literal[">", "<"], message: dict[str, Any]) -> None:
        if current := stage():
            current.wire.add(direction, message)

    def misfit(method: str) -> None:
        if current := stage():
            current.wire.unknown.append(method)

    package.record_official(note, misfit)
    package.record_ours(note, misfit)
