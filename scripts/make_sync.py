"""Write the blocking SDK, `api.py` and `client.py` in `treadle/client`, from the one for asyncio: without `await`.

python -m scripts.make_sync            # write them
python -m scripts.make_sync --check    # say whether they are up to date

A rule that matches nothing is an error: what it was for has gone, or has a form that it does not know.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from scripts.page_parts import write

import treadle

FOLDER: Final = Path(treadle.__file__).parent / "client"

Rules: TypeAlias = tuple[tuple[str, str], ...]

# Of every file, after its own.
ALL: Final[Rules] = (
    (r"\basync_(?=calls|client|retry|shell)", ""),
    (r"\b(_?)Async(?=[A-Z])", r"\1"),
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
)
# Of `async_api`. In this order: longer before shorter.
API: Final[Rules] = (
    (r" *await self(\._codex)?\._ensure_initialized\(\)\n", ""),
    (r"AsyncThread\(self, ", "Thread(self._client, "),
    (r"AsyncTurnHandle\(self\._codex, ", "TurnHandle(self._client, "),
    (r"self\._codex\._client", "self._client"),
    (r"_codex: AsyncCodex", "_client: AppServerClient"),
    (r"\bAsyncGenerator\[(\w+(?:\[\w+\])?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\baclosing\b", "closing"),
)


class Job(NamedTuple):
    source: str
    target: str
    about: str
    """What the docstring of the target begins with."""
    rules: Rules


JOBS: Final = (
    Job(
        "async_api.py",
        "api.py",
        "`Codex`, `Thread`, `TurnHandle`: the SDK for blocking code.",
        (
            *API,
            (r"import asyncio\n", ""),
            (r"asyncio\.CancelledError", "KeyboardInterrupt"),
            (r"\bcancelled\b", "stopped by Ctrl-C"),
            (r"LoginHandle\(self, ", "LoginHandle(self._client, "),
            (r"`async with AsyncCodex\(\)", "`with Codex()"),
            *ALL,
            (r"for event in (.+):\n +yield event\n", r"yield from \1\n"),
        ),
    ),
    Job(
        "async_client.py",
        "client.py",
        "`AppServerClient`: the blocking client, one method for each RPC. Any number of threads may use one at a time.",
        (
            (r"when the caller is cancelled", "Ctrl-C"),
            (r"__a(enter|exit)__", r"__\1__"),
            (r"\basync_connection\b", "connection"),
            (r"\bAwaitable\[(\w+)\]", r"\1"),
            (r"\bAwaitable, ", ""),
            *ALL,
        ),
    ),
)


def main() -> int:
    return write({FOLDER / job.target: render(job) for job in JOBS})


def render(job: Job) -> str:
    docstring = f'"""{job.about}\n\nMade from {job.source} by scripts/make_sync.py: edit those.\n"""\n'
    rules = (*job.rules, (r"(?s)\A\"\"\".*?\"\"\"\n", docstring))  # last: the others change the names of modules
    return formatted(changed((FOLDER / job.source).read_text(), rules, job.source), FOLDER / job.target)


def changed(text: str, rules: Rules, source: str) -> str:
    """The text after all the rules. Each has to match."""
    for pattern, replacement in rules:
        text, count = re.subn(pattern, replacement, text)
        if not count:
            sys.exit(f"{source}: nothing matches the rule {pattern!r}. Take it out, or make it match again")
    return text


def formatted(text: str, target: Path, *, rules: str = "I") -> str:
    """The text as ruff formats the target, after mending what breaks these of its rules."""
    for arguments in (("check", "--fix", "--select", rules, "-q"), ("format", "-q")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(target), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
