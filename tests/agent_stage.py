"""`AgentStage`: a `HostAgent` on a real app-server, ours or codex, with a mock model behind it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from host_stage import KEY, WAIT_S, HostStage, Way, pid_of
from treadle.client import CodexConfig
from treadle.host import AppServerRuntime, ConversationResult, HostAgent, ItemCompleted, ItemStarted, RuntimeEvent

PROGRAM = """\
import sys
from pathlib import Path
from agent_stage import AgentStage
folder, way, address, said = sys.argv[1:]
stage = AgentStage(Path(folder), "child" if way == "child" else Path(way), address)
with stage.agent(store=stage.store, session_id="chat") as agent:
    result = agent.run_conversation(said)
    print(result.final_response, result.thread_id)
"""


class AgentStage(HostStage):
    """`address` is of a mock model that is there already, for a stage that is used by another process."""

    def __init__(self, folder: Path, way: Way, address: str | None = None) -> None:
        self.folder = folder
        if address is None:
            super().__init__(folder, way)
            self.address = self.model.base_url
        else:
            self.way, self.home, self.workspace = way, folder / "home", folder / "workspace"
            self.address = address
        self.store = folder / "conversations.db"
        self.agents: list[HostAgent] = []
        self.in_a_command, self.after_a_command = threading.Event(), threading.Event()

    def agent(self, **choices: Any) -> HostAgent:
        """As a user makes one; for codex, with a function that says which program."""
        given: dict[str, Any] = {
            "runtime": self.app_server if isinstance(self.way, Path) else "app_server",
            "api_key": KEY,
            "base_url": self.address,
            "provider": "openai",
            "cwd": self.workspace,
            "sandbox": "danger-full-access",
            "model": "gpt-5.5",
            "memory_nudge_interval": 0,
            "skill_nudge_interval": 0,
            "on_event": self._hear,
        }
        made = HostAgent(**{**given, **choices})
        self.agents.append(made)
        return made

    def _hear(self, event: RuntimeEvent) -> None:
        if isinstance(event, ItemStarted) and event.item.type == "commandExecution":
            self.in_a_command.set()
        if isinstance(event, ItemCompleted) and event.item.type == "commandExecution":
            self.after_a_command.set()

    def app_server(self) -> AppServerRuntime:
        return AppServerRuntime(self.config(), provider="openai", api_key=KEY, base_url=self.address)

    def launched_by(self, script: str) -> Callable[[], AppServerRuntime]:
        """Runtimes whose server is started by a program of the test's own, which is given the server's command."""
        launcher = self.folder / "launcher.py"
        launcher.write_text(script)
        program = [str(self.way)] if isinstance(self.way, Path) else [sys.executable, "-m", "treadle"]
        command = (sys.executable, str(launcher), *program, "app-server", "--listen", "stdio://")
        # All in the file, because the command line is not ours; without a key, which it does not ask for.
        table = f'name = "mock"\nbase_url = "{self.address}"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
        (self.home / "config.toml").write_text(
            f'model = "gpt-5.5"\nmodel_provider = "mock"\n[model_providers.mock]\n{table}[analytics]\nenabled = false\n'
        )
        config = CodexConfig(launch_args_override=command, env=self.env, cwd=str(self.workspace))
        return lambda: AppServerRuntime(config)

    def say(self, agent: HostAgent, text: Any, answer: str) -> ConversationResult:
        """A turn in which the model says just that."""
        self.model.enqueue_assistant_message(answer)
        result = agent.run_conversation(text)
        assert (result.final_response, result.error) == (answer, None)
        return result

    def close_all(self) -> None:
        for agent in self.agents:
            agent.close()
        self.model.close()


def start(agent: HostAgent, text: Any) -> Future[ConversationResult]:
    """Run a turn in another thread."""
    future: Future[ConversationResult] = Future()

    def run() -> None:
        try:
            future.set_result(agent.run_conversation(text))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def ended(future: Future[ConversationResult]) -> ConversationResult:
    return future.result(WAIT_S)


def server_of(agent: HostAgent) -> int:
    assert agent.session is not None
    assert isinstance(agent.session.runtime, AppServerRuntime)
    return pid_of(agent.session.runtime)
