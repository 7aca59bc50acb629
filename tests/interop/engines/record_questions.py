"""Record the runs in which claude asks anew: `PYTHONPATH=tests:. python -m interop.engines.record_questions`.

Like `record`, but with somebody who answers. It needs the folder `STAGE` for itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, Final

import engine_streams
from interop.engines.bare import RUN_S
from interop.engines.cases import STAGE
from interop.peers import installed
from treadle.runners.claude import ENGINE
from treadle.runners.engine import ApprovalAnswer, ApprovalAsk, RunOptions, RunRequest
from treadle.testing import EngineHome, EngineModel

ANSWERS: Final = {
    "control_allow": ApprovalAnswer(allow=True),
    "control_deny": ApprovalAnswer(allow=False, message="not today"),
    "control_change": ApprovalAnswer(allow=True, input={"command": "touch instead.txt"}),
}


def main() -> None:
    meta: dict[str, Any] = engine_streams.meta()
    STAGE.mkdir()
    try:
        with EngineModel() as model:
            home = EngineHome(STAGE, model)
            for name, answer in ANSWERS.items():
                meta[f"claude_{name}"] = _record(home, name, answer)
                print(name, meta[f"claude_{name}"]["answer"], sorted(file.name for file in home.project.iterdir()))
    finally:
        shutil.rmtree(STAGE)
    text = json.dumps(dict(sorted(meta.items())), indent=1, ensure_ascii=False)
    engine_streams.META.write_text(text + "\n", encoding="utf-8")


def _record(home: EngineHome, name: str, answer: ApprovalAnswer) -> dict[str, Any]:
    async def somebody(ask: ApprovalAsk) -> ApprovalAnswer:
        return answer

    request = RunRequest(prompt="RUN:touch asked.txt", options=RunOptions(approve=somebody), cwd=str(home.project))
    argv, state = ENGINE.arguments(request), ENGINE.start(request)
    lines, last = [], {}
    with subprocess.Popen(
        [str(installed("claude")), *argv],
        cwd=home.project,
        env=home.env("claude"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert ENGINE.answer is not None
        child.stdin.write(ENGINE.prompt(request))
        child.stdin.flush()
        for line in child.stdout:
            lines.append(line)
            last = json.loads(line)
            for out in ENGINE.translate(state, line):
                if isinstance(out, ApprovalAsk):
                    child.stdin.write(ENGINE.answer(out, answer))
                    child.stdin.flush()
            if last["type"] == "result":
                child.stdin.close()
        rc = child.wait(RUN_S)
    (engine_streams.FOLDER / f"claude_{name}.jsonl").write_bytes(b"".join(lines))
    return {"argv": ["claude", *argv], "stdin": request.prompt, "rc": rc, "answer": last.get("result")}


if __name__ == "__main__":
    main()
