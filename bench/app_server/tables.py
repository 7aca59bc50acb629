"""The report: the table of ratios (as `bench.report` makes it), what does not grow, and what the client costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from bench.app_server.growth import Pair
from bench.app_server.measures import MEASURES
from bench.report import Line, Samples, Summary, as_json

NULL: Final = "null"


def client_table(samples: Samples) -> str:
    """The floor of the other table: nothing can be measured that is faster than this."""
    rows = [
        (row.title, row.unit, str(Summary.of(null)))
        for measure in MEASURES
        for row in measure.rows
        if (null := samples.get(measure.name, row.key, NULL))
    ]
    return _table(("the client against a server that does nothing", "unit", "value"), rows)


def growth_table(pairs: Sequence[Pair], small: str, large: str) -> str:
    head = ("what", "server", f"{small}, p50 (p99) ms", f"{large}, p50 (p99) ms", "ratio", "target", "")
    return _table(head, [_growth_cells(pair) for pair in pairs])


def verdict(pair: Pair) -> str:
    if pair.limit is None:
        return ""
    found = pair.large.p50 if pair.limit.unit == "ms" else pair.ratio
    return "reached" if found <= pair.limit.value else "missed"


def whole_json(facts: Mapping[str, str], samples: Samples, shown: Sequence[Line], pairs: Sequence[Pair]) -> str:
    document = json.loads(as_json(facts, samples, shown))
    document["client"] = {
        f"{measure}: {row}": values for (measure, row, server), values in samples.values.items() if server == NULL
    }
    document["growth"] = [asdict(pair) for pair in pairs]
    return json.dumps(document, indent=2) + "\n"


def _growth_cells(pair: Pair) -> tuple[str, ...]:
    return (
        pair.what,
        pair.server,
        f"{pair.small.p50:.3g} ({pair.small.p99:.3g})",
        f"{pair.large.p50:.3g} ({pair.large.p99:.3g})",
        f"{pair.ratio:.3g}",
        "" if pair.limit is None else f"≤ {pair.limit.value:g} {pair.limit.unit}".rstrip(),
        verdict(pair),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, aligned so that it can be read as it is."""
    widths = [max(3, *(len(row[column]) for row in (head, *rows))) for column in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, rule, *rows)
    )
