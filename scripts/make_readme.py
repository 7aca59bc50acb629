"""Write the tables of `README.md` from the pages that have the whole of them: clients that work, and measurements.

The table of measurements also begins `docs/performance.md`.

python -m scripts.make_readme            # write them
python -m scripts.make_readme --check    # say whether they are up to date

`make interop` writes `docs/interop.md`, `make bench` the tables of `docs/performance.md`.
"""

from __future__ import annotations

import re
from typing import Final

from scripts.install_peers import PEERS
from scripts.page_parts import REPOSITORY, filled, with_part, write

TARGET: Final = REPOSITORY / "README.md"
INTEROP: Final = REPOSITORY / "docs" / "interop.md"
PERFORMANCE: Final = REPOSITORY / "docs" / "performance.md"

# What a reader wants to know first: the section of the page, the name of the row there, and the name here.
MEASURED: Final = (
    ("The app-server", "start of the program to the answer of `initialize`", "app-server: start"),
    ("The app-server", "`turn/start` to `turn/completed`, median", "app-server: a turn, without the model"),
    ("The app-server", "turns, 100 at a time", "app-server: turns, 100 at a time"),
    ("The app-server", "resident memory, idle", "app-server: memory, idle"),
    ("The app-server", "resident memory of an idle thread", "app-server: memory of an idle thread"),
    ("The exec-server", "start of the program to first `initialize` answer", "exec-server: start"),
    ("The exec-server", "`/bin/true`, start to closed, 32 at a time", "exec-server: commands, 32 at a time"),
    ("The exec-server", "echo through `cat`, round trip", "exec-server: echo through `cat`"),
    ("The exec-server", "pushed output", "exec-server: output"),
    ("The SDK", "import, up to the class `Codex`", "SDK: import"),
    ("The SDK", "deltas of a long turn through `stream()`, sync", "SDK: events of a stream"),
)
ENGINES: Final = ("codex", "claude", "opencode", "pi")


def parts() -> dict[str, str]:
    """What is generated, by the name of its place on the page."""
    return {"clients": _clients(), "measured": _measured()}


def _clients() -> str:
    page = INTEROP.read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| (\d+) \| (\d+) \| (\d+) \(codex (.+?)\) \| [\d-]+ \|$", page, re.MULTILINE
    )
    if not rows:
        raise SystemExit(f"{INTEROP.name} has no table of clients")
    lines = [
        f"| {client} | {version} | {ours} of {all_} | {real} of {all_} | {codex} |"
        for client, version, all_, ours, real, codex in rows
    ]
    head = [
        "| client | version | scenarios passed on Treadle | on the real codex | of version |",
        "|---|---|---|---|---|",
    ]
    named = ", ".join(f"{name} {PEERS[name].version}" for name in ENGINES)
    engines = (
        f"The other way round, `treadle run` drives {named}, and the real codex uses our exec-server as its machine."
    )
    return "\n".join([*head, *lines, "", engines])


def _measured() -> str:
    page = PERFORMANCE.read_text(encoding="utf-8")
    lines = [_measurement(page, section, row, name) for section, row, name in MEASURED]
    return "\n".join(["| what | Treadle | the real one | |", "|---|---|---|---|", *lines])


def _measurement(page: str, section: str, row: str, name: str) -> str:
    below = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| {re.escape(row)} +\| (.+?) +\| ([\d.]+).*?\| ([\d.]+).*?\| ([\d.]+) ", below, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{PERFORMANCE.name} has no measurement {row!r} in {section!r}")
    unit, ours, real, ratio = found.groups()
    return f"| {name} | {_value(ours, unit)} | {_value(real, unit)} | {_words(float(ratio), unit)} |"


def _value(number: str, unit: str) -> str:
    value = float(number)
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{shown}/s" if unit == "1/s" else f"{shown} {unit}"


def _words(ratio: float, unit: str) -> str:
    """The ratio as one would say it: for rates more is better, for times and sizes less."""
    good, bad = ("smaller", "larger") if unit in ("MB", "kB") else ("faster", "slower")
    better = ratio if "/s" in unit else 1 / ratio
    return f"**{_short(better)} × {good}**" if better >= 1 else f"{_short(1 / better)} × {bad}"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


def main() -> int:
    performance = PERFORMANCE.read_text(encoding="utf-8")
    return write(
        {
            TARGET: filled(TARGET.read_text(encoding="utf-8"), parts()),
            PERFORMANCE: with_part(performance, "measured", _measured()),
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
