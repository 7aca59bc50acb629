"""Write the table of layers of `docs/architecture.md`: which they are is in pyproject.toml, what they own in the code.

python -m scripts.make_architecture            # write it
python -m scripts.make_architecture --check    # say whether it is up to date
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from typing import Final

from scripts.page_parts import REPOSITORY, main

TARGET: Final = REPOSITORY / "docs" / "architecture.md"
SOURCE: Final = REPOSITORY / "src"


def parts() -> dict[str, str]:
    """What is generated, by the name of its place on the page."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = settings["tool"]["importlinter"]["contracts"]
    layers: list[str] = contract["layers"]
    rows = [
        f"| {number} | `{module}` | {_owns(module)} |"
        for number, layer in zip(range(len(layers) - 1, -1, -1), layers, strict=True)
        for module in layer.split(" : ")
    ]
    return {"layers": "\n".join(["| layer | package | what it owns |", "|---|---|---|", *rows])}


def _owns(module: str) -> str:
    """The first sentences of its docstring."""
    [source] = _files(module)
    documented = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(documented.partition("\n\n")[0].split()).replace("|", "\\|")


def _files(module: str) -> Iterator[str]:
    place = SOURCE.joinpath(*module.split("."))
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.exists():
            yield path.read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(TARGET, parts()))
