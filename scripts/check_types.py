"""What a user's type checker sees of the package: pyright knows the type of every public name; `tests/typing` holds.

    python scripts/check_types.py

mypy checks the same file with all the others. Nothing is downloaded: `pyright[nodejs]` brings what it needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
# pyright looks for the package in what `python` on the path is, and asks the registry for news of itself otherwise.
ENVIRONMENT: Final = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
}


def main() -> int:
    checked = _pyright("--project", str(REPOSITORY / "tests" / "typing"))
    problems = [_shown(found) for found in checked["generalDiagnostics"]]
    verified = _pyright("--verifytypes", "treadle", "--ignoreexternal")
    problems += _incomplete(verified)
    score = verified.get("typeCompleteness", {}).get("completenessScore", 0)
    print("\n".join([*problems, f"pyright: {score:.2%} of the public types are known, {len(problems)} problems"]))
    return 1 if problems or score < 1 else 0


def _pyright(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pyright", "--outputjson", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"pyright did not work:\n{done.stdout}{done.stderr}") from None
    return found


def _incomplete(verified: dict[str, Any]) -> Iterator[str]:
    yield from map(_shown, verified["generalDiagnostics"])
    for symbol in verified.get("typeCompleteness", {}).get("symbols", ()):
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]:
            errors = [found for found in symbol["diagnostics"] if found["severity"] == "error"]
            yield from (f"{symbol['name']}: {_shown(found)}" for found in errors)


def _shown(found: dict[str, Any]) -> str:
    place = found.get("range", {}).get("start", {})
    where = f"{found['file']}:{place['line'] + 1}: " if "file" in found and place else ""
    return f"{where}{found['message']}"


if __name__ == "__main__":
    sys.exit(main())
