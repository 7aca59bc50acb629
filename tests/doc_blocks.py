"""The code blocks of README and docs, for the tests that run them.

A fence says what its block is: a language, and perhaps `norun="reason"` (it cannot run in a test) or
`file="name"` (a TOML file other than `config.toml`), which readers do not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[1]
DOCS: Final = sorted((REPOSITORY / "docs").glob("*.md"))
DOCUMENTS: Final = (REPOSITORY / "README.md", *DOCS)
_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_ATTRIBUTE: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """`line` is that of its fence."""

    document: Path
    line: int
    language: str
    text: str
    attributes: dict[str, str] = field(default_factory=dict)
    rest: str = ""
    """What the fence says and nobody understands."""

    @property
    def runs(self) -> bool:
        return "norun" not in self.attributes

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def _blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            info = found["info"]
            yield Block(
                document=document,
                line=text.count("\n", 0, found.start()) + 1,
                language=found["language"],
                text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
                attributes=dict(_ATTRIBUTE.findall(info)),
                rest=_ATTRIBUTE.sub("", info).strip(),
            )


BLOCKS: Final = tuple(_blocks())


def every(*languages: str) -> pytest.MarkDecorator:
    """Runs a test once for each block of these languages that can run."""
    chosen = [block for block in BLOCKS if block.language in languages and block.runs]
    return pytest.mark.parametrize("block", chosen, ids=str)
