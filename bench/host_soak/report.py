"""What the soak of the host tells: one table of results, one of how the turns ended, and one over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.host_soak.soak import Tally
from bench.soak.report import held, latency, markdown, slope


def table(tally: Tally, seconds: float) -> str:
    rows = [
        ("time", f"{seconds / 60:.1f} minutes"),
        ("turns", f"{tally.total:,}"),
        ("threads of the runtime, restarts of the agent", f"{len(tally.threads)}, {tally.restarts}"),
        ("messages in the store at the end", f"{tally.messages:,}"),
        ("times that the model was asked, reviews", f"{tally.model_calls:,}, {tally.reviews}"),
        ("messages lost, doubled or strange; wrong ends", f"{len(tally.problems):,}"),
        *held(tally.samples),
        ("processes that the agent had started, most", str(max(each.processes for each in tally.children))),
        ("memory per 1,000 turns, over the second half", f"{slope(tally.samples) * 1000:+.2f} MB"),
        ("left after `close()`", ", ".join(f"{count} {name}" for name, count in tally.left.items())),
        ("a plain turn: p50, p99, max", latency(tally.seconds["plain"])),
    ]
    return markdown(("what", "value"), rows)


def ends(tally: Tally) -> str:
    """By kind of turn: how many there were, how they ended, and how long they took."""
    names = Counter(name for name, _ in tally.ends.elements())
    rows = []
    for name, count in sorted(names.items(), key=lambda each: (-each[1], each[0])):
        ends = sorted((end, number) for (kind, end), number in tally.ends.items() if kind == name)
        ended = ", ".join(f"{number} {end}" for end, number in ends)
        rows.append((name, str(count), ended, f"{max(tally.seconds[name]):.1f}"))
    return markdown(("turn", "number", "ended", "longest, s"), rows)


def series(tally: Tally) -> str:
    """About ten lines, with as many turns between them: is it flat?"""
    pairs = list(zip(tally.samples, tally.children, strict=True))
    shown = pairs[:: max(1, len(pairs) // 10)]
    rows: Sequence[Sequence[str]] = [
        (
            f"{sample.at_s:.0f}",
            f"{sample.turns:,}",
            f"{sample.memory:.1f}",
            str(sample.descriptors),
            str(sample.threads),
            str(beside.processes),
            f"{beside.memory:.1f}",
        )
        for sample, beside in shown
    ]
    return markdown(("s", "turns", "MB", "descriptors", "threads", "processes", "MB of the server"), rows)
