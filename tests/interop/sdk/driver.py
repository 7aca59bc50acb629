"""The program that runs scenarios with one of the SDKs: `python -m interop.sdk.driver`, one JSON line for each.

Reads `{"scenario", "package", "program", "folder", "face"}` from standard input and answers `{"seen", "unknown",
"sent"}`, or `{"error"}` with a traceback. A scenario that hangs ends the program, with the stacks of all threads on
standard error. The parent side is `interpreter`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from interop.sdk.normal import normal
from interop.sdk.package import load
from interop.sdk.stage import Stage, Wire, record
from treadle.testing import MockModel

HANG_SECONDS: Final = 60.0

_current: Stage | None = None


def main() -> None:
    # For this process only: a server that it starts must not find the SDK's packages.
    os.environ.pop("PYTHONPATH", None)
    record(lambda: _current)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints may look like an answer
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        answer = _play(request)
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer) + "\n")


def _play(request: dict[str, Any]) -> dict[str, Any]:
    global _current
    module, _, name = request["scenario"].rpartition(".")
    folder = Path(request["folder"])
    with (folder / "wire.txt").open("w") as file:
        model = MockModel()
        _current = stage = Stage(request["package"], request["program"], folder, request["face"], Wire(file), model)
        try:
            stage.configure()
            scenario = getattr(load(module, stage.package), name)
            seen = asyncio.run(scenario(stage))
            return {"seen": seen, "unknown": stage.wire.unknown, "sent": normal(stage.wire.requests(), folder)}
        except Exception:
            return {"error": traceback.format_exc()}
        finally:
            _current = None
            stage.close()
            model.close()


if __name__ == "__main__":
    main()
