"""Record the output of the real agent programs anew: `PYTHONPATH=tests:. python -m interop.engines.record [CASE...]`.

A case is named as its file, such as `codex_text`, or by its engine alone. It needs the folder `STAGE` for itself.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import engine_streams
from interop.engines import bare
from interop.engines.cases import CASES, NO_SESSION, STAGE, TOOL_STARTED, Case
from interop.peers import installed
from treadle.testing import EngineHome, EngineModel


def main(names: list[str]) -> None:
    meta: dict[str, Any] = engine_streams.meta()
    sessions: dict[str, str] = {}
    STAGE.mkdir()
    try:
        shutil.copy(Path(__file__).with_name("toy_mcp.py"), STAGE)
        with EngineModel() as model:
            home = EngineHome(STAGE, model)
            for case in CASES:
                key = f"{case.engine}_{case.name}"
                if names and not {key, case.engine} & set(names):
                    continue
                meta[key] = _record(case, home, sessions)
                print(key, {name: meta[key][name] for name in ("rc", "answer")}, flush=True)
                text = json.dumps(dict(sorted(meta.items())), indent=1, ensure_ascii=False)
                engine_streams.META.write_text(text + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(STAGE)


def _record(case: Case, home: EngineHome, sessions: dict[str, str]) -> dict[str, Any]:
    for left in home.project.iterdir():
        left.unlink()
    resume = None if case.resumes is None else sessions.get(case.engine + case.resumes, NO_SESSION[case.engine])
    ended = bare.run(
        home,
        case.engine,
        installed(case.engine),
        case.prompt,
        resume=resume,
        extra=case.extra,
        env=case.env,
        stop=(TOOL_STARTED[case.engine], case.stop) if case.stop else None,
        seconds=case.seconds,
    )
    if case.name == "tool":
        sessions[case.engine + case.name] = ended.session
    lines = ended.stdout.splitlines(keepends=True)[: case.lines]
    (engine_streams.FOLDER / f"{case.engine}_{case.name}.jsonl").write_bytes(b"".join(lines))
    argv = [case.engine, *ended.argv[1:]]
    return {"argv": argv, "stdin": case.prompt, "rc": ended.rc, "answer": ended.answer}


if __name__ == "__main__":
    main(sys.argv[1:])
