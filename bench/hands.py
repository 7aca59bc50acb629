"""`python -m bench hands`: what skills, hooks and sub-agents cost. Each part is a module with a `measure`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench import hands_agents, hands_hooks, hands_skills, machine

PARTS: Final[Mapping[str, Callable[[], Mapping[str, float]]]] = {
    "skills": hands_skills.measure,
    "hooks": hands_hooks.measure,
    "agents": hands_agents.measure,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench hands", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="the parts to measure")
    options = parser.parse_args(arguments)
    print("\n".join(f"{name}: {value}" for name, value in machine.facts([]).items()), file=sys.stderr)
    for part in options.only:
        for name, milliseconds in PARTS[part]().items():
            print(f"{part}  {name}: {milliseconds:.3f} ms", flush=True)
    return 0
