"""`converse`: several prompts to one claude that asks before it uses a tool, all over its standard streams."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

from interop.engines import bare
from treadle.testing import EngineHome

ARGUMENTS: Final = ("--input-format", "stream-json", "--permission-prompt-tool", "stdio")
HELLO: Final = {
    "type": "control_request",
    "request_id": "init1",
    "request": {"subtype": "initialize", "hooks": None},
}


def converse(home: EngineHome, program: Path, prompts: list[str], *, allow: bool) -> tuple[str, bare.Ended]:
    """What it was given, and what came of it. A prompt is sent when the one before has its result."""
    argv = [str(program), *bare.arguments("claude", extra=ARGUMENTS)]
    left = list(prompts)
    given = [json.dumps(HELLO) + "\n", _user(left.pop(0))]
    printed: list[str] = []
    with subprocess.Popen(
        argv, cwd=home.project, env=home.env("claude"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        timer = threading.Timer(bare.RUN_S, child.kill)
        timer.start()
        child.stdin.write("".join(given))
        child.stdin.flush()
        for line in child.stdout:
            printed.append(line)
            message = json.loads(line)
            if message["type"] == "result" and not left:
                child.stdin.close()
            elif message["type"] in ("result", "control_request"):
                given.append(_answer(message, allow) if message["type"] == "control_request" else _user(left.pop(0)))
                child.stdin.write(given[-1])
                child.stdin.flush()
        timer.cancel()
    return "".join(given), bare.Ended("claude", argv, "".join(printed).encode(), "", child.returncode)


def _user(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


def _answer(request: dict[str, Any], allow: bool) -> str:
    yes = {"behavior": "allow", "updatedInput": request["request"]["input"]}
    no = {"behavior": "deny", "message": "not today"}
    response = {"subtype": "success", "request_id": request["request_id"], "response": yes if allow else no}
    return json.dumps({"type": "control_response", "response": response}) + "\n"
