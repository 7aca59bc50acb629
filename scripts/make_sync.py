"""Write `treadle/client/api.py` from `async_api.py`: the same SDK without `await`.

python scripts/make_sync.py            # write it
python scripts/make_sync.py --check    # say whether it is up to date
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import treadle

FOLDER: Final = Path(treadle.__file__).parent / "client"
SOURCE: Final = FOLDER / "async_api.py"
TARGET: Final = FOLDER / "api.py"

# In this order: longer before shorter.
RULES: Final = (
    (
        r"(?s)\A\"\"\".*?\"\"\"\n",
        '"""`Codex`, `Thread`, `TurnHandle`: the SDK for blocking code.\n\n'
        'Made from async_api.py by scripts/make_sync.py: edit those.\n"""\n',
    ),
    (r" *await self(\._codex)?\._ensure_initialized\(\)\n", ""),
    (r"import asyncio\n", ""),
    (r"asyncio\.CancelledError", "KeyboardInterrupt"),
    (r"\bcancelled\b", "stopped by Ctrl-C"),
    (r"AsyncThread\(self, ", "Thread(self._client, "),
    (r"\ban Async(?=[A-Z])", "a "),
    (r"AsyncTurnHandle\(self\._codex, ", "TurnHandle(self._client, "),
    (r"LoginHandle\(self, ", "LoginHandle(self._client, "),
    (r"self\._codex\._client", "self._client"),
    (r"_codex: AsyncCodex", "_client: AppServerClient"),
    (r"\bAsyncGenerator\[(\w+(?:\[\w+\])?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\baclosing\b", "closing"),
    (r"`async with AsyncCodex\(\)", "`with Codex()"),
    (r"\basync_client\b", "client"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"for event in (.+):\n +yield event\n", r"yield from \1\n"),
)


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        fresh = TARGET.exists() and TARGET.read_text() == text
        print("up to date" if fresh else f"out of date: {TARGET.name}")
        return 0 if fresh else 1
    TARGET.write_text(text)
    return 0


def render() -> str:
    text = SOURCE.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    for arguments in (("check", "--fix", "--select", "I", "-q"), ("format", "-q")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
