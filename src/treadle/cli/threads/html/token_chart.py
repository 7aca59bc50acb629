"""The tokens of each turn as a drawing (SVG) inside the page. Pure.

Places across are percentages, so that letters keep their size on a telephone. Colours are those of the style sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treadle.cli.threads.facts import Tokens
from treadle.cli.threads.figures import count

# More bars than this would be thinner than can be seen: turns that follow each other share one.
MAX_BARS: Final = 60
_MAX_LABELS: Final = 10
_TOP, _BOTTOM, _HEIGHT = 10.0, 190.0, 214
_LEFT, _RIGHT = 9.0, 99.5  # per cent
_WIDEST: Final = 7.0  # of a bar, per cent


@dataclass(frozen=True, slots=True)
class _Bar:
    first: int
    last: int
    tokens: Tokens

    @property
    def name(self) -> str:
        return f"turn {self.first}" if self.first == self.last else f"turns {self.first} to {self.last}"


def token_chart(turns: Sequence[Tokens]) -> str:
    """An `<svg>`; nothing where no tokens are known."""
    bars = _bars(turns)
    highest = max((bar.tokens.total for bar in bars), default=0)
    if not highest:
        return ""
    top = nice_ceiling(highest)
    parts = [f'<svg class="chart" width="100%" height="{_HEIGHT}" role="img" aria-label="Tokens of each turn">']
    parts += [_line(top * quarter / 4, top) for quarter in range(5)]
    room = (_RIGHT - _LEFT) / len(bars)
    step = -(-len(bars) // _MAX_LABELS)
    for place, bar in enumerate(bars):
        middle = _LEFT + room * (place + 0.5)
        parts.append(_drawn(bar, middle, min(room * 0.7, _WIDEST), top))
        if place % step == 0:
            label = str(bar.first)
            parts.append(
                f'<text class="tick" x="{middle:.2f}%" y="{_BOTTOM + 18:g}" text-anchor="middle">{label}</text>'
            )
    parts.append("</svg>")
    return "\n".join(parts)


def nice_ceiling(highest: int) -> int:
    """The next number whose quarters are easy to read."""
    size = 1
    while size * 10 < highest:
        size *= 10
    return next(size * factor for factor in (1, 2, 4, 6, 8, 10) if size * factor >= highest)


def _bars(turns: Sequence[Tokens]) -> list[_Bar]:
    together = -(-len(turns) // MAX_BARS) or 1
    bars = []
    for start in range(0, len(turns), together):
        some = turns[start : start + together]
        bars.append(_Bar(start + 1, start + len(some), sum(some, Tokens())))
    return bars


def _line(value: float, top: int) -> str:
    y = _y(value, top)
    return (
        f'<line class="grid" x1="{_LEFT}%" x2="{_RIGHT}%" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{_LEFT - 1}%" y="{y + 4:.1f}" text-anchor="end">{count(value)}</text>'
    )


def _drawn(bar: _Bar, middle: float, width: float, top: int) -> str:
    tokens = bar.tokens
    told = f"{bar.name}: {tokens.fresh:,} input, {tokens.cached:,} cached input, {tokens.output:,} output"
    parts = [f"<g><title>{told}</title>"]
    base = 0
    for kind, amount in (("cached", tokens.cached), ("fresh", tokens.fresh), ("output", tokens.output)):
        if amount:
            high, low = _y(base + amount, top), _y(base, top)
            parts.append(
                f'<rect class="{kind}" x="{middle - width / 2:.2f}%" width="{width:.2f}%" '
                f'y="{high:.1f}" height="{max(low - high, 0.8):.1f}"/>'
            )
            base += amount
    return "".join([*parts, "</g>"])


def _y(value: float, top: int) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * value / top
