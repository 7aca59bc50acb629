"""The generated parts of a Markdown page: each is between two comments with its name; the rest is written by hand."""

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
    """Write the page, or say with `--check` whether it is up to date; the exit code."""
    old = target.read_text(encoding="utf-8")
    new = filled(old, parts)
    if "--check" in sys.argv:
        print("up to date" if new == old else f"out of date: {target.name}; run `make generate`")
        return int(new != old)
    target.write_text(new, encoding="utf-8")
    return 0
