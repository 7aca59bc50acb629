"""Draws the rows of a terminal as an SVG: text that can be selected, no fonts and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from scripts.terminal_screen import Cell, Row

CELL_WIDTH: Final = 8.4
CELL_HEIGHT: Final = 19
FONT_SIZE: Final = 14
MARGIN: Final = 18
BAR: Final = 36
# Where letters stand in a row.
BASELINE: Final = 14
INK: Final = "#d6deeb"
PAPER: Final = "#161b22"
FAINT: Final = "#8b949e"
COLOURS: Final = {
    "default": INK,
    "black": "#484f58",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#d6deeb",
    "brightblack": "#8b949e",
    "brightred": "#ffa198",
    "brightgreen": "#7ee787",
    "brightbrown": "#f2cc60",
    "brightyellow": "#f2cc60",
    "brightblue": "#a5d6ff",
    "brightmagenta": "#e2c5ff",
    "brightcyan": "#b3f0ff",
    "brightwhite": "#ffffff",
}

# Black letters have to be seen on the paper, and letters on a black ground.
GROUNDS: Final = {"black": "#2d333b", "white": "#8b949e"}


def draw(rows: Sequence[Row], *, columns: int, title: str) -> str:
    width = round(columns * CELL_WIDTH + 2 * MARGIN)
    height = BAR + len(rows) * CELL_HEIGHT + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' xml:space="preserve" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f"<style>text {{ font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace;"
        f" font-size: {FONT_SIZE}px; white-space: pre }}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        *(f'<circle cx="{MARGIN + 4 + 20 * n}" cy="18" r="6" fill="{c}"/>' for n, c in enumerate(_BUTTONS)),
        f'<text x="{width / 2:g}" y="23" text-anchor="middle" fill="{FAINT}">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        lines += _row(row, BAR + number * CELL_HEIGHT)
    return "\n".join([*lines, "</svg>", ""])


_BUTTONS: Final = ("#ff7b72", "#e3b341", "#56d364")


def _row(row: Row, top: int) -> Iterator[str]:
    """Backgrounds first, then each stretch of one style as a text of a given length: whatever the font, it fits."""
    column = 0
    texts = []
    for style, cells in groupby(row, _style):
        run = list(cells)
        x, length = MARGIN + column * CELL_WIDTH, len(run) * CELL_WIDTH
        column += len(run)
        if run[0].background != "default":
            yield (
                f'<rect x="{x:.1f}" y="{top}" width="{length:.1f}" height="{CELL_HEIGHT}"'
                f' fill="{GROUNDS.get(run[0].background) or _colour(run[0].background)}"/>'
            )
        text = "".join(cell.text for cell in run)
        if shown := text.strip():
            # Spaces at the ends are no ink, and not every program that draws keeps them.
            x += (len(text) - len(text.lstrip())) * CELL_WIDTH
            length -= (len(text) - len(shown)) * CELL_WIDTH
            place = f'x="{x:.1f}" y="{top + BASELINE}" textLength="{length:.1f}"'
            texts.append(f"<text {place}{style}>{escape(shown)}</text>")
    yield from texts


def _style(cell: Cell) -> str:
    parts = [f' fill="{FAINT if cell.dim and cell.foreground == "default" else _colour(cell.foreground)}"']
    if cell.background != "default":  # so that a stretch has one ground
        parts.append(f' class="on-{cell.background}"')
    if cell.bold:
        parts.append(' font-weight="bold"')
    if cell.dim and cell.foreground != "default":
        parts.append(' opacity="0.65"')
    if cell.italic:
        parts.append(' font-style="italic"')
    if cell.underline:
        parts.append(' text-decoration="underline"')
    return "".join(parts)


def _colour(name: str) -> str:
    return COLOURS.get(name) or f"#{name}"
