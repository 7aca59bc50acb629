"""The measured parts of `docs/performance.md`: `--page` writes them there, between two comments with their name.

The README takes its own table from that page (`scripts.make_readme`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import date
from typing import Final

from scripts.page_parts import REPOSITORY, with_part

PAGE: Final = REPOSITORY / "docs" / "performance.md"


def positive(text: str) -> int:
    """The number of an option, for `argparse`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", action="store_true", help="also write the tables to docs/performance.md")


def write_part(name: str, facts: Mapping[str, str], text: str) -> None:
    """`facts` are those of the machine and the programs, said once in a section; `text` has the tables."""
    said = "; ".join(f"{fact}: {value}" for fact, value in facts.items())
    head = f"Measured on {date.today().isoformat()}. {said}.\n\n" if facts else ""
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), name, head + text), encoding="utf-8")
