"""Metrics: what has happened in this process, counted, as Prometheus reads it (text format 0.0.4).

All counters stand here, so that one page shows what is counted; they are counted where it happens, and never forgotten
while the process runs. What is true at a moment (connections, turns that run) is given to `render` by the server.

A label is one of a few words of ours, but for the names of models and providers, which users write: of each of those
metrics the first `MAX_SERIES` combinations have a series of their own, and the rest are `other`. No label ever has
something from a conversation, a command or a path in it.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from treadle import secrets
from treadle._version import __version__

MAX_SERIES: Final = 256
# Names of models are short; what is longer is none.
MAX_LABEL: Final = 80
_OTHER: Final = "other"
_STARTED: Final = time.time()


class Gauge(NamedTuple):
    """A number that is true now."""

    name: str
    help: str
    value: float


class Counter:
    """A number that only grows, for each combination of its labels. To be counted from one thread."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name: str = f"treadle_{name}"
        self.help = help
        self._labels = labels
        self._values: dict[tuple[str, ...], float] = {}
        ALL.append(self)

    def add(self, *labels: str, amount: float = 1) -> None:
        values = self._values
        labels = _series(values, labels)
        values[labels] = values.get(labels, 0) + amount

    def lines(self) -> Iterator[str]:
        """What was counted; nothing before the first time."""
        if self._values:
            yield from _head(self.name, self.help, "counter")
            for labels, value in tuple(self._values.items()):
                yield f"{self.name}{_shown(self._labels, labels)} {value:.16g}"


class Histogram:
    """How often something took how long, in seconds, for each combination of its labels. To be counted from one
    thread."""

    def __init__(self, name: str, help: str, bounds: tuple[float, ...], *labels: str) -> None:
        self.name: str = f"treadle_{name}"
        self.help = help
        self._bounds = bounds
        self._labels = labels
        self._counts: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}  # by bound, and the sum
        ALL.append(self)

    def add(self, seconds: float, *labels: str) -> None:
        labels = _series(self._counts, labels)
        if labels not in self._counts:
            self._counts[labels] = [0] * (len(self._bounds) + 1), [0.0]
        counts, total = self._counts[labels]
        counts[bisect_left(self._bounds, seconds)] += 1
        total[0] += seconds

    def lines(self) -> Iterator[str]:
        if self._counts:
            yield from _head(self.name, self.help, "histogram")
            for labels, (counts, (seconds,)) in tuple(self._counts.items()):
                names, before = (*self._labels, "le"), 0
                for bound, count in zip((*self._bounds, "+Inf"), tuple(counts), strict=True):
                    before += count
                    yield f"{self.name}_bucket{_shown(names, (*labels, str(bound)))} {before}"
                yield f"{self.name}_sum{_shown(self._labels, labels)} {seconds:.9g}"
                yield f"{self.name}_count{_shown(self._labels, labels)} {before}"


def _series(known: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels that something is counted under: bounded, whatever users write."""
    return labels if labels in known or len(known) < MAX_SERIES else (_OTHER,) * len(labels)


ALL: Final[list[Counter | Histogram]] = []

TURN_SECONDS: Final = Histogram(
    "turn_seconds", "How long turns took, by how they ended.", (0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800), "status"
)
REQUESTS: Final = Counter("requests_total", "Requests of clients that were answered.", "method", "outcome")
APPROVALS: Final = Counter("approvals_total", "Approvals that were asked for, by how that ended.", "outcome")
TOKENS: Final = Counter(
    "model_tokens_total", "Tokens of answers; cached ones are input too.", "provider", "model", "kind"
)
COST: Final = Counter(
    "model_cost_dollars_total", "What answers have cost, where prices are known.", "provider", "model"
)
COMMIT_SECONDS: Final = Histogram(
    "commit_seconds",
    "How long transactions of the store took.",
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
COMMIT_FAILURES: Final = Counter("commit_failures_total", "Writes that could not be stored.", "kind")
PROCESSES: Final = Counter("processes_total", "Commands that have ended: exit code 0, another one, or lost.", "outcome")
OUTPUT: Final = Counter("process_output_bytes_total", "What commands have written.")
EXEC_REQUESTS: Final = Counter(
    "exec_requests_total",
    "Requests to the exec-server by the name of the client's token: done, failed, or denied by its rights.",
    "client",
    "outcome",
)
REFUSED: Final = Counter("refused_connections_total", "Connections that were refused, by status of HTTP.", "status")


def count_tokens(provider: str, model: str, used: Mapping[str, int], cost: float | None) -> None:
    """Count an answer of a model; `used` are its tokens by kind."""
    for kind, tokens in used.items():
        TOKENS.add(provider, model, kind, amount=tokens)
    if cost is not None:
        COST.add(provider, model, amount=cost)


def render(gauges: Iterable[Gauge]) -> str:
    """All metrics, with what is true now of the server that is asked."""
    version = _shown(("version",), (__version__,))
    lines = [*_head("treadle_info", "Which version runs.", "gauge"), f"treadle_info{version} 1"]
    for gauge in (*gauges, *_process()):
        kind = "counter" if gauge.name.endswith("_total") else "gauge"
        lines += (*_head(gauge.name, gauge.help, kind), f"{gauge.name} {gauge.value:.16g}")
    for metric in ALL:
        lines += metric.lines()
    return "\n".join(lines)


def _process() -> Iterator[Gauge]:
    """The usual facts of a process, under their usual names."""
    import resource  # not on every system, and only a server that is asked needs it

    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Gauge("process_start_time_seconds", "When the process was started.", _STARTED)
    yield Gauge("process_cpu_seconds_total", "Time of the processor.", used.ru_utime + used.ru_stime)
    with open("/proc/self/statm", encoding="ascii") as file:
        yield Gauge("process_resident_memory_bytes", "Memory.", int(file.read().split()[1]) * resource.getpagesize())
    yield Gauge("process_open_fds", "Open files.", len(os.listdir("/proc/self/fd")))


def _head(name: str, help: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _shown(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a series. Users write the names of models; a key in the wrong place is not shown."""
    pairs = []
    for name, value in zip(names, values, strict=True):
        text = secrets.redact(value, secrets.known())[:MAX_LABEL]
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pairs.append(f'{name}="{text}"')
    return f"{{{','.join(pairs)}}}" if pairs else ""
