"""What the soak tells: one table of results, and one of how the server went on over time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression
from typing import Final

from bench.soak.client import SoakClient
from bench.soak.meter import Sample
from bench.soak.worker import Tally

# A tenth of the time is for imports, caches and the first compactions.
_WARM: Final = 10
_STEPS: Final = 10


def table(samples: Sequence[Sample], tally: Tally, clients: Sequence[SoakClient]) -> str:
    followers = [follower for client in clients for follower in client.followers.values()]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.turns.most_common())
    rows = [
        ("time", f"{samples[-1].at_s / 60:.1f} minutes"),
        ("turns", f"{tally.total:,} in {len(followers)} threads ({kinds})"),
        ("turns that ended in an unexpected way", f"{tally.odd_ends:,}"),
        ("reconnects", f"{sum(client.reconnects for client in clients):,}"),
        ("numbered events", f"{sum(each.events for each in followers):,}"),
        ("lost events", f"{sum(each.lost for each in followers):,}"),
        ("doubled events", f"{sum(each.doubled for each in followers):,}"),
        ("texts whose deltas are not the text", f"{sum(each.torn for each in followers):,}"),
        *held(samples),
        ("memory per 10,000 turns, over the second half", f"{slope(samples) * 10_000:+.2f} MB"),
        ("latency of a plain turn: p50, p99, max", latency(tally.seconds)),
    ]
    return markdown(("what", "value"), rows)


def held(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    first, warm, last = samples[0], samples[len(samples) // _WARM], samples[-1]
    marks = (first, warm, last)
    memory = [*(each.memory for each in marks), max(each.memory for each in samples)]
    descriptors = [*(each.descriptors for each in marks), max(each.descriptors for each in samples)]
    threads = [*(each.threads for each in marks), max(each.threads for each in samples)]
    return [
        ("memory at the start, when warm, at the end, peak", ", ".join(f"{value:.1f}" for value in memory) + " MB"),
        ("descriptors, the same", ", ".join(map(str, descriptors))),
        ("threads of the process, the same", ", ".join(map(str, threads))),
    ]


def latency(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    chosen = (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])
    return ", ".join(f"{value * 1e3:.1f}" for value in chosen) + " ms"


def slope(samples: Sequence[Sample]) -> float:
    """MB per turn, since half of the turns were done: the straight line that fits best."""
    later = [each for each in samples if each.turns >= samples[-1].turns / 2]
    turns, memory = [each.turns for each in later], [each.memory for each in later]
    return linear_regression(turns, memory).slope if len(set(turns)) > 1 else 0.0


def series(samples: Sequence[Sample]) -> str:
    """The start, and about ten lines with as many turns between them: is it flat?"""
    turns = samples[-1].turns
    marks = [turns * step // _STEPS for step in range(_STEPS)]
    shown = [next(each for each in samples if each.turns >= mark) for mark in marks]
    shown.append(samples[-1])
    rows = [
        (f"{each.at_s:.0f}", f"{each.turns:,}", f"{each.memory:.1f}", str(each.descriptors), str(each.threads))
        for each in shown
    ]
    return markdown(("s", "turns", "MB", "descriptors", "threads"), rows)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)
