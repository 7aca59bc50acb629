"""`examples/chat_bot`: the program, against a chat service that the test plays, with our own engine on a mock model."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kit.warm_python import run_python
from treadle.runners import Job, ResumeToken, StartedEvent
from treadle.testing import AppServerHarness

BOT: Final = Path(__file__).parents[2] / "examples" / "chat_bot" / "bot.py"
DEADLINE_S: Final = 60.0
ADA: Final = 17


class ChatService:
    """What people have written and bots have not read, and all messages of bots by their numbers."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.said: dict[int, str] = {}
        self._numbers = iter(range(1, 1000))
        self._changed = threading.Condition()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                members = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                token, _, method = self.path.removeprefix("/bot").partition("/")
                answer: dict[str, Any] = {"ok": False, "description": "Unauthorized"}
                if token == "secret":
                    answer = {"ok": True, "result": getattr(service, method)(**members)}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    # --- for bots ---

    def getMe(self) -> dict[str, Any]:
        return {"is_bot": True}

    def getUpdates(self, offset: int, timeout: int) -> list[dict[str, Any]]:
        with self._changed:
            self.updates = [update for update in self.updates if update["update_id"] >= offset]
            self._changed.wait_for(lambda: self.updates, 0.5)
            return [*self.updates]

    def sendMessage(self, chat_id: int, text: str, reply_to_message_id: int | None) -> dict[str, Any]:
        with self._changed:
            number = next(self._numbers)
            self.said[number] = text
            self._changed.notify_all()
            return {"message_id": number}

    def editMessageText(self, chat_id: int, message_id: int, text: str) -> bool:
        with self._changed:
            self.said[message_id] = text
            self._changed.notify_all()
            return True

    # --- for the test ---

    def write(self, text: str, *, by: int = ADA, reply_to: int | None = None) -> None:
        with self._changed:
            number = next(self._numbers)
            message: dict[str, Any] = {"message_id": number, "chat": {"id": 5}, "from": {"id": by}, "text": text}
            if reply_to is not None:
                message["reply_to_message"] = {"message_id": reply_to, "text": self.said[reply_to]}
            self.updates.append({"update_id": number, "message": message})
            self._changed.notify_all()

    def wait_for(self, wanted: Callable[[str], bool]) -> int:
        """The newest message of the bot that is as wanted."""

        def found() -> int | None:
            return next((number for number in reversed(self.said) if wanted(self.said[number])), None)

        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, DEADLINE_S), self.said
            number = found()
        assert number is not None
        return number


@pytest.fixture
def service() -> Iterator[ChatService]:
    service = ChatService()
    yield service
    service.server.shutdown()
    service.server.server_close()


@contextmanager
def bot(harness: AppServerHarness, service: ChatService) -> Iterator[subprocess.Popen[bytes]]:
    env = {
        **os.environ,
        "TREADLE_HOME": str(harness.home),
        "BOT_URL": f"http://127.0.0.1:{service.server.server_port}",
        "BOT_TOKEN": "secret",
        "BOT_PEOPLE": f"{ADA}, 18",
        "BOT_ZONE": "Europe/Berlin",
        "BOT_ENGINE": "treadle",
        "BOT_SHOW_EVERY_S": "0.1",
    }
    with subprocess.Popen([sys.executable, str(BOT)], cwd=harness.workspace, env=env) as program:
        try:
            yield program
        finally:
            program.send_signal(signal.SIGKILL)


def test_people_are_answered_in_projects_branches_and_sessions(tmp_path: Path, service: ChatService) -> None:
    with AppServerHarness(tmp_path) as harness:
        git = ["git", "-C", str(harness.workspace), "-c", "user.name=me", "-c", "user.email=me@example.com"]
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        (harness.home / "projects.toml").write_text(f'[projects.web]\npath = "{harness.workspace}"\n')
        harness.model.enqueue_function_call("exec_command", {"cmd": "pwd; echo ${BOT_TOKEN:-no token}"})
        harness.model.enqueue_assistant_message("It is fixed.")
        with bot(harness, service):
            service.write("who are you?", by=99)  # nobody who may
            service.write("/web @fix-login fix it")
            first = service.wait_for(lambda text: text.startswith("It is fixed."))
            assert first == min(service.said), service.said
            assert "`treadle exec resume " in service.said[first]
            [_, called] = harness.model.requests()
            assert str(harness.workspace / ".worktrees" / "fix-login") in called.body.decode()
            assert "no token" in called.body.decode()

            harness.model.enqueue_assistant_message("And tested.")
            service.write("and now the tests", reply_to=first)
            service.wait_for(lambda text: text.startswith("And tested."))
            assert "It is fixed." in harness.model.requests()[-1].body.decode()

            service.write("@fix-login go on")
            service.wait_for(lambda text: "of which project is the branch" in text)
            service.write("/web @-x what?")
            service.wait_for(lambda text: "names no branch" in text)
            service.write("/every 30 9 * * mun what is new?")
            service.wait_for(lambda text: "the weekday 'mun' is not understood" in text)
            service.write("/start")
            service.wait_for(lambda text: text.startswith("why does the login fail?"))
            service.write("/stop")
            service.wait_for(lambda text: text == "What is repeated here: nothing")
            service.write("/every morning what is new?")
            service.wait_for(lambda text: text.startswith("Say when and what: /every 30 9"))
            service.write("/cancel")
            service.wait_for(lambda text: text.startswith("Reply with it to the message"))
            service.write("/every @daily what is new?")
            daily = service.said[service.wait_for(lambda text: text.startswith("First on "))]
            assert ", 00:00 CE" in daily  # in the time of BOT_ZONE
            service.write(f"/stop {daily.rpartition(' ')[2]}")
            service.wait_for(lambda text: text == "It has ended.")
            service.said.clear()
            service.write("/every 30 9 * * mon-fri what is new?")
            name = service.said[service.wait_for(lambda text: ", 09:30 CE" in text)].rpartition(" ")[2]
            service.write(f"/stop {name}")
            service.wait_for(lambda text: text == "It has ended.")


def test_what_was_being_done_goes_on_after_kill_9_and_can_be_cancelled(tmp_path: Path, service: ChatService) -> None:
    with AppServerHarness(tmp_path) as harness:
        forever = threading.Event()
        harness.model.enqueue_assistant_message("never said", gate=forever)
        with bot(harness, service) as program:
            service.write("take your time")
            service.wait_for(lambda text: text.startswith("working"))
            program.send_signal(signal.SIGKILL)
            program.wait(DEADLINE_S)
        harness.model.enqueue_assistant_message("Never said either.", gate=forever)
        with bot(harness, service):
            shown = service.wait_for(lambda text: text.startswith("working"))
            service.write("/cancel", reply_to=shown)
            service.wait_for(lambda text: text.startswith("✗ cancelled"))
        forever.set()
        assert len(service.said) == 1  # one message showed it all


def test_who_starts_it_without_a_token_that_is_taken_is_told_in_a_line(tmp_path: Path, service: ChatService) -> None:
    env = {**os.environ, "TREADLE_HOME": str(tmp_path), "BOT_URL": f"http://127.0.0.1:{service.server.server_port}"}
    for given, said in (
        ({}, "Set BOT_TOKEN and BOT_PEOPLE: the first lines of "),
        ({"BOT_TOKEN": "wrong", "BOT_PEOPLE": "17"}, "The chat service refuses BOT_TOKEN: Unauthorized"),
    ):
        done = run_python([str(BOT)], cwd=tmp_path, env={**env, **given})
        assert done.returncode == 1
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1


@pytest.mark.anyio
async def test_what_is_repeated_is_cancelled_by_a_reply_to_its_message_alone() -> None:
    program = runpy.run_path(str(BOT))
    cancelled, said = [], []

    class Handle:
        job = Job(id="report@1", engine="treadle", prompt="what is new?", meta={"chat": 5})

        async def cancel(self) -> None:
            cancelled.append(self.job.id)

    async def send(chat: int, text: str, reply_to: int | None = None) -> int:
        said.append(text)
        return 9

    scheduler = SimpleNamespace(jobs=[Handle()])
    bot = program["Bot"](SimpleNamespace(send=send), {"17"}, None, scheduler, None)
    bot.on_event(Handle.job, StartedEvent("treadle", ResumeToken("treadle", "1")))
    bot._watched["report@1"].message = 9
    message: dict[str, Any] = {"chat": {"id": 5}, "from": {"id": ADA}, "message_id": 10, "text": "/cancel"}
    await bot._take(message)
    assert cancelled == []
    assert len(said) == 1
    await bot._take({**message, "reply_to_message": {"message_id": 9}})
    assert cancelled == ["report@1"]
    assert len(said) == 1
