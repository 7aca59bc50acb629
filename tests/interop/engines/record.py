"""Record the output of the real agent programs anew: `PYTHONPATH=tests:. python -m interop.engines.record [CASE...]`.

A case is named as its file, such as `codex_text`, or by its engine alone. It needs the folder `STAGE` for itself.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import engine_streams
from interop.engines import bare, control
from interop.engines.cases import CASES, NO_SESSION, STAGE, TOOL_STARTED, Case
from interop.peers import installed
from treadle.testing import EngineHome, EngineModel


def main(names: list[str]) -> None:
    meta = engine_streams.meta()
    STAGE.mkdir()
    try:
        shutil.copy(Path(__file__).with_name("toy_mcp.py"), STAGE)
        with EngineModel() as model:
            home = EngineHome(STAGE, model)
            for engine, name, given, ended, lines in _runs(home, names):
                key = f"{engine}_{name}"
                kept = ended.stdout.splitlines(keepends=True)[:lines]
                (engine_streams.FOLDER / f"{key}.jsonl").write_bytes(b"".join(kept))
                argv = [engine, *ended.argv[1:]]
                meta[key] = {"argv": argv, "stdin": given, "rc": ended.rc, "answer": ended.answer}
                print(key, ended.rc, ended.answer, flush=True)
    finally:
        shutil.rmtree(STAGE)
    text = json.dumps(dict(sorted(meta.items())), indent=1, ensure_ascii=False)
    engine_streams.META.write_text(text + "\n", encoding="utf-8")


def _runs(home: EngineHome, names: list[str]) -> Iterator[tuple[str, str, str, bare.Ended, int | None]]:
    def chosen(engine: str, name: str) -> bool:
        return not names or bool({engine, f"{engine}_{name}"} & set(names))

    sessions: dict[str, str] = {}
    for case in CASES:
        if chosen(case.engine, case.name):
            _clear(home)
            ended = _run(case, home, sessions)
            if case.name == "tool":
                sessions[f"{case.engine}_tool"] = ended.session
            yield case.engine, case.name, case.prompt, ended, case.lines
    for name, allow in (("control_allow", True), ("control_deny", False)):
        if chosen("claude", name):
            _clear(home)
            given, ended = control.converse(home, installed("claude"), ["RUN:touch asked.txt", "USERS?"], allow=allow)
            yield "claude", name, given, ended, None


def _clear(home: EngineHome) -> None:
    for left in home.project.iterdir():
        left.unlink()


def _run(case: Case, home: EngineHome, sessions: dict[str, str]) -> bare.Ended:
    session = sessions.get(f"{case.engine}_{case.resumes}", NO_SESSION[case.engine])
    return bare.run(
        home,
        case.engine,
        installed(case.engine),
        case.prompt,
        resume=session if case.resumes else None,
        extra=case.extra,
        env=case.env,
        stop=(partial(_in_tool, case, home), case.stop) if case.stop else None,
        seconds=case.seconds,
    )


def _in_tool(case: Case, home: EngineHome, line: dict[str, Any]) -> bool:
    """Whether it is the line that tells about the tool; then the tool has begun, too."""
    if not TOOL_STARTED[case.engine](line):
        return False
    deadline = time.monotonic() + case.seconds
    while "started" in case.prompt and not (home.project / "started").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the tool of {case.engine}_{case.name} did not begin")
        time.sleep(0.01)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
