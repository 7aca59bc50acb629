"""The samples and what is reported about them: medians, ratios, targets, as a Markdown table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bench.measures import Row

Verdict = Literal["reached", "missed", ""]
OURS, REAL = "ours", "real"


class Measured(Protocol):
    """The measure of a benchmark, whatever it is run with."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> tuple[Row, ...]: ...


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

    def add(self, measure: Measured, server: str, values: Mapping[str, float]) -> None:
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
    ratios: tuple[float, ...]
    """Round by round: the two of a round ran next to each other, under the same load of others."""

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def rounds_reached(self) -> int:
        return sum(self._reaches(ratio) for ratio in self.ratios)

    @property
    def verdict(self) -> Verdict:
        if self.ratio is None or self.row.target is None:
            return ""
        return "reached" if self._reaches(self.ratio) else "missed"

    def _reaches(self, ratio: float) -> bool:
        if self.row.target is None:
            return False
        return ratio >= self.row.target if self.row.better == "more" else ratio <= self.row.target


def lines(measures: Sequence[Measured], samples: Samples) -> Iterator[Line]:
    for measure in measures:
        for row in measure.rows:
            ours, real = (samples.get(measure.name, row.key, server) for server in (OURS, REAL))
            if ours:
                ratios = tuple(one / other for one, other in zip(ours, real, strict=True)) if real else ()
                yield Line(measure.name, row, Summary.of(ours), Summary.of(real) if real else None, ratios)


def explained(rounds: int) -> str:
    """What the numbers of the table are."""
    return f"Medians (least – most) of {rounds} round(s); the ratio is the median of the rounds' ratios."


def table(shown: Sequence[Line]) -> str:
    """Markdown, aligned so that it can be read as it is."""
    head = ("what", "unit", "ours", "real", "ours : real", "target", "")
    cells = [head, *(_cells(line) for line in shown)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(head))]
    rule = tuple("-" * width for width in widths)
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
            "ratios": line.ratios,
            "target": line.row.target,
            "verdict": line.verdict or None,
        }
        for line in shown
    ]
    return json.dumps({"machine": facts, "rows": rows}, indent=2) + "\n"


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
        f"{line.verdict} ({line.rounds_reached} of {len(line.ratios)} rounds)" if line.verdict else "",
    )


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
