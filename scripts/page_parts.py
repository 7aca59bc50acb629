"""Files that scripts make: written, or compared with `--check`; and the generated parts of a Markdown page, each
between two comments with its name, the rest of which is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]


def filled(page: str, parts: Mapping[str, str]) -> str:
    """A page with its generated parts written anew. Raises `SystemExit` when it has places for other ones."""
    places = re.findall(r"<!-- made: ([\w-]+) -->", page)
    if sorted(places) != sorted(parts):
        raise SystemExit(f"the page has places for {sorted(places)}, and there are parts for {sorted(parts)}")
    for name, text in parts.items():
        page = with_part(page, name, text)
    return page


def with_part(page: str, name: str, text: str) -> str:
    """A page with one of its generated parts written anew. Raises `SystemExit` when it has no place for it."""
    begin, end = f"<!-- made: {name} -->", f"<!-- end: {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"there is no {end} after {begin}")
    text = text.strip("\n")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def main(target: Path, parts: Mapping[str, str]) -> int:
    """`write` for a page with generated parts."""
    return write({target: filled(target.read_text(encoding="utf-8"), parts)})


def write(made: Mapping[Path, str]) -> int:
    """Write the files, or say with `--check` whether they are up to date; the exit code."""
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        names = ", ".join(path.name for path in stale)
        print(f"out of date: {names}; run `make generate`" if stale else "up to date")
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
    return 0
