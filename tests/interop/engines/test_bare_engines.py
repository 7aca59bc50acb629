"""The real agent programs on our stage, without our runners: the model and the home are right for each of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from interop.engines import bare
from treadle.testing import EngineHome, EngineName

pytestmark = pytest.mark.interop

ALLOWED = {"claude": ["--allowedTools", "Bash"]}
# codex tells about its environment in a message of the user.
USERS_AFTER_TWO_PROMPTS = {"codex": 3, "claude": 2, "opencode": 2, "pi": 2}


@pytest.mark.parametrize("engine", ["codex", "claude", "opencode", "pi"])
def test_a_command_and_then_the_same_session_again(
    engine: EngineName, engine_home: EngineHome, engine_program: Callable[[str], Path]
) -> None:
    run = partial(bare.run, engine_home, engine, engine_program(engine), extra=ALLOWED.get(engine, []))
    first = run("RUN:echo from-$((40+2)) | tee made.txt")
    assert first.rc == 0, first.stderr
    assert first.answer is not None
    assert first.answer.startswith("tool said:")
    assert "from-42" in first.answer
    assert (engine_home.project / "made.txt").read_text() == "from-42\n"
    again = run("USERS?", resume=first.session)
    assert (again.rc, again.answer) == (0, f"users={USERS_AFTER_TWO_PROMPTS[engine]}"), again.stderr
    assert again.session == first.session


@pytest.mark.parametrize("engine", ["codex", "claude", "pi"])
def test_an_answer_waits_at_its_gate(
    engine: EngineName, engine_home: EngineHome, engine_program: Callable[[str], Path]
) -> None:
    model = engine_home.model
    with bare.in_background(engine_home, engine, engine_program(engine), "wait here GATE:a") as ended:
        model.wait_for_prompt("GATE:a", timeout=bare.RUN_S)
        assert not ended.done()
        model.open_gate("a")
        assert ended.result(bare.RUN_S).answer == "pong: wait here GATE:a"


SDK_SCRIPT = """
import { Codex } from "@openai/codex-sdk";
const codex = new Codex({ codexPathOverride: process.argv[1], env: process.env });
const options = { skipGitRepoCheck: true, workingDirectory: process.argv[2] };
const thread = codex.startThread(options);
const first = await thread.run("RUN:echo from-$((40+2))");
const second = await codex.resumeThread(thread.id, options).run("USERS?");
console.log(JSON.stringify([first.items.map((item) => item.type), second.finalResponse]));
"""


def test_the_typescript_sdk_drives_codex(engine_home: EngineHome, engine_program: Callable[[str], Path]) -> None:
    run = subprocess.run(
        ["node", "--input-type=module", "--eval", SDK_SCRIPT, engine_program("codex"), engine_home.project],
        cwd=engine_program("codex-ts-sdk"),
        env=engine_home.env("codex"),
        capture_output=True,
        timeout=bare.RUN_S,
    )
    assert run.returncode == 0, run.stderr.decode()
    assert json.loads(run.stdout) == [["command_execution", "agent_message"], "users=3"]
