"""The samples and what is told about them: medians, ratios, targets, as a Markdown table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.measures import Measure, Row

Verdict = Literal["reached", "missed", ""]
OURS, REAL = "ours", "real"


@dataclass(frozen=True, slots=True)
class Summary:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Summary:
        return cls(statistics.median(samples), min(samples), max(samples))

    def __str__(self) -> str:
        return f"{_number(self.median)} ({_number(self.least)} – {_number(self.most)})"


@dataclass(slots=True)
class Samples:
    """Every value of every round: measure, row, server."""

    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def add(self, measure: Measure, server: str, values: Mapping[str, float]) -> None:
        for row in measure.rows:
            self.values.setdefault((measure.name, row.key, server), []).append(values[row.key])

    def get(self, measure: str, row: str, server: str) -> list[float]:
        return self.values.get((measure, row, server), [])


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table; a summary is missing when the server did not take part."""

    measure: str
    row: Row
    ours: Summary
    real: Summary | None
    ratio: float | None

    @property
    def verdict(self) -> Verdict:
        if self.ratio is None or self.row.target is None:
            return ""
        good = self.ratio >= self.row.target if self.row.better == "more" else self.ratio <= self.row.target
        return "reached" if good else "missed"


def lines(measures: Sequence[Measure], samples: Samples) -> Iterator[Line]:
    for measure in measures:
        for row in measure.rows:
            ours, real = (samples.get(measure.name, row.key, server) for server in (OURS, REAL))
            if ours:
                yield Line(measure.name, row, Summary.of(ours), Summary.of(real) if real else None, _ratio(ours, real))


def table(shown: Sequence[Line]) -> str:
    """Markdown, aligned so that it can be read as it is."""
    head = ("what", "unit", "ours", "real", "ours : real", "target", "")
    cells = [head, *(_cells(line) for line in shown)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    rule = tuple("-" * max(width, 3) for width in widths)
    return "\n".join(_joined(row, widths) for row in (head, rule, *cells[1:]))


def as_json(facts: Mapping[str, str], samples: Samples, shown: Sequence[Line]) -> str:
    rows = [
        {
            "measure": line.measure,
            "row": line.row.key,
            "unit": line.row.unit,
            "better": line.row.better,
            "ours": samples.get(line.measure, line.row.key, OURS),
            "real": samples.get(line.measure, line.row.key, REAL),
            "ratio": line.ratio,
            "target": line.row.target,
            "verdict": line.verdict or None,
        }
        for line in shown
    ]
    return json.dumps({"machine": facts, "rows": rows}, indent=2) + "\n"


def _ratio(ours: Sequence[float], real: Sequence[float]) -> float | None:
    """The median of the rounds' ratios: the two of a round ran next to each other, under the same load of others."""
    if not real:
        return None
    return statistics.median(one / other for one, other in zip(ours, real, strict=True))


def _cells(line: Line) -> tuple[str, ...]:
    target = ""
    if line.row.target is not None:
        target = f"{'≥' if line.row.better == 'more' else '≤'} {_number(line.row.target)}"
    return (
        line.row.title,
        line.row.unit,
        str(line.ours),
        "" if line.real is None else str(line.real),
        "" if line.ratio is None else _number(line.ratio),
        target,
        line.verdict,
    )


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
