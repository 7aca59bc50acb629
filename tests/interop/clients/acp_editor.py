"""`AcpEditor`: we play the editor that runs an ACP agent as its child, over stdio.

Owns the child, the matching of answers to requests, and what the agent has told of each session.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from interop.clients.client_stage import WAIT_S, ClientStage

Json: TypeAlias = dict[str, Any]
END_S: Final = 5.0


class AcpRefused(Exception):
    """The agent answered a request with an error."""


class AcpEditor:
    """`extensions` are those of the agent that the editor says it knows, `config` are settings that it gives it."""

    def __init__(
        self, agent: Path, stage: ClientStage, *, extensions: Sequence[str] = (), config: Json | None = None
    ) -> None:
        self._numbers = itertools.count(1)
        self._answers: dict[int, Json] = {}
        self._sessions: dict[str, AcpSession] = {}
        self._updates: dict[str, list[Json]] = {}
        self._changed = threading.Condition()  # guards the three above, and the lists of the sessions
        self._writing = threading.Lock()  # guards standard input
        self._log = stage.folder / f"acp-{uuid.uuid4()}.log"
        self.cwd = stage.workspace
        with self._log.open("wb") as stderr:
            self.child = subprocess.Popen(
                [str(agent)],
                env=stage.env(CODEX_PATH=str(stage.program), CODEX_CONFIG=json.dumps(config or {})),
                cwd=stage.workspace,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="acp-editor", daemon=True)
        self._reader.start()
        known = {"jetbrains": {"air": {"version": 1, "capabilities": list(extensions)}}} if extensions else {}
        capabilities = {"elicitation": {"form": {}}, "_meta": known}
        self.agent: Json = self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def close(self) -> None:
        """End the agent and its server at once: by itself it takes two seconds. May be called again."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        if self.child.stdout.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self._reader.join(END_S)
        self.child.stdin.close()
        self.child.stdout.close()

    # --- requests ---

    def ask(self, method: str, **params: Any) -> Any:
        return self.answer(self.send(method, **params))

    def send(self, method: str, **params: Any) -> int:
        number = next(self._numbers)
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def tell(self, method: str, **params: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, number: int) -> Any:
        reply = self.wait(lambda: self._answers.get(number), f"the answer to request {number}")
        if "error" in reply:
            raise AcpRefused(json.dumps(reply["error"]))
        return reply["result"]

    def answered(self, number: int) -> bool:
        return number in self._answers

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        """Until `look` gives something."""
        with self._changed:
            if not self._changed.wait_for(lambda: look() or self.child.poll() is not None, WAIT_S):
                raise TimeoutError(f"{what} did not come in {WAIT_S:g} s; the agent said:\n{self._log.read_text()}")
            if not (found := look()):
                raise AssertionError(f"the agent ended before {what} came; it said:\n{self._log.read_text()}")
            return found

    # --- sessions ---

    def new_session(self, mode: str | None = None, *, mcp_servers: Sequence[Json] = ()) -> AcpSession:
        result = self.ask("session/new", cwd=str(self.cwd), mcpServers=list(mcp_servers))
        session = self._session(result["sessionId"], result)
        if mode is not None:
            session.set_mode(mode)
        return session

    def load_session(self, session_id: str) -> AcpSession:
        """What was told of it before is forgotten, so that its history is all there is."""
        with self._changed:
            self._updates.pop(session_id, None)
        result = self.ask("session/load", sessionId=session_id, cwd=str(self.cwd), mcpServers=[])
        return self._session(session_id, result)

    def fork_session(self, session_id: str) -> AcpSession:
        result = self.ask("session/fork", sessionId=session_id, cwd=str(self.cwd), mcpServers=[])
        return self._session(result["sessionId"], result)

    def listed(self) -> dict[str, Json]:
        """The sessions to choose from, by id."""
        return {row["sessionId"]: row for row in self.ask("session/list", cwd=str(self.cwd))["sessions"]}

    def _session(self, session_id: str, opened: Json) -> AcpSession:
        with self._changed:
            updates = self._updates.setdefault(session_id, [])
            self._sessions[session_id] = session = AcpSession(self, session_id, opened, updates)
        return session

    # --- the child ---

    def _write(self, message: Json) -> None:
        assert self.child.stdin is not None
        with self._writing:
            self.child.stdin.write(json.dumps(message).encode() + b"\n")
            self.child.stdin.flush()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._changed:
                self._receive(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _receive(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            self._answers[message["id"]] = message
        elif method == "session/update":
            self._updates.setdefault(message["params"]["sessionId"], []).append(message["params"]["update"])
        elif method == "session/request_permission":
            outcome = self._sessions[message["params"]["sessionId"]].decide(message["params"])
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": {"outcome": outcome}})
        elif method == "elicitation/create":
            result = self._sessions[message["params"]["sessionId"]].fill(message["params"])
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "id" in message:
            error = {"code": -32601, "message": f"this editor has no {method}"}
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": error})


class AcpSession:
    """A conversation.

    `choice` is the option that the user takes when the agent asks; None: she cancels the turn. `form` is what she
    fills in when there is one; None: she does not.
    """

    def __init__(self, editor: AcpEditor, session_id: str, opened: Json, updates: list[Json]) -> None:
        self.editor = editor
        self.id = session_id
        self.opened = opened
        self.updates = updates
        self.choice: str | None = None
        self.form: Json | None = None
        self.asked: list[Json] = []

    def prompt(self, text: str) -> str:
        """Say this, and wait for the end of the turn; why it ended."""
        return self.ended(self.begin(text))

    def begin(self, text: str) -> int:
        return self.editor.send("session/prompt", sessionId=self.id, prompt=[{"type": "text", "text": text}])

    def ended(self, number: int) -> str:
        reason: str = self.editor.answer(number)["stopReason"]
        return reason

    def cancel(self) -> None:
        self.editor.tell("session/cancel", sessionId=self.id)

    def set_mode(self, mode: str) -> None:
        self.editor.ask("session/set_mode", sessionId=self.id, modeId=mode)

    def option(self, name: str) -> Json:
        [found] = [option for option in self.opened["configOptions"] if option["id"] == name]
        chosen: Json = found
        return chosen

    def set_option(self, name: str, value: str) -> None:
        self.editor.ask("session/set_config_option", sessionId=self.id, configId=name, value=value)

    def decide(self, params: Json) -> Json:
        self.asked.append(params)
        if self.choice is None:
            return {"outcome": "cancelled"}
        return {"outcome": "selected", "optionId": self.choice}

    def fill(self, params: Json) -> Json:
        self.asked.append(params)
        return {"action": "decline"} if self.form is None else {"action": "accept", "content": self.form}

    def said(self, who: str = "agent") -> str:
        """All pieces of messages so far, joined."""
        return "".join(self._texts(f"{who}_message_chunk"))

    def wait_said(self, words: str) -> None:
        self.editor.wait(lambda: words in self.said(), f"{words!r} in {self.id}")

    def wait_update(self, kind: str) -> Json:
        found: Json = self.editor.wait(lambda: next(iter(self.of(kind)), None), f"{kind} in {self.id}")
        return found

    def of(self, kind: str) -> list[Json]:
        return [update for update in list(self.updates) if update["sessionUpdate"] == kind]

    def tool_calls(self) -> list[Json]:
        """Each as its updates have left it."""
        calls: dict[str, Json] = {}
        for update in list(self.updates):
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                calls.setdefault(update["toolCallId"], {}).update(update)
        return list(calls.values())

    def _texts(self, kind: str) -> list[str]:
        return [update["content"].get("text", "") for update in self.of(kind)]
