"""Write `treadle/types.py`: every public name of the app-server protocol in one place, beside the events of the SDK.

python -m scripts.make_types            # write it
python -m scripts.make_types --check    # say whether it is up to date
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.page_parts import write

import treadle
from treadle.protocol import app
from treadle.protocol.app.methods import NOTIFICATIONS

PROTOCOL: Final = Path(app.__file__).parent
WIDTH: Final = 120
TARGET: Final = Path(treadle.__file__).parent / "types.py"
PAYLOADS: Final = PROTOCOL / "payloads.py"
# What is for reading and writing the protocol, not for talking about it.
INSIDE: Final = ("base", "methods", "ours", "tolerant", "__init__", "handshake")
OTHERS: Final = {
    "treadle.client.turn_events": (
        "CommandFinished CommandOutput CommandStarted Done Event FileChange Plan PlanStep Problem Reasoning Text "
        "TextDelta TextRestarted ToolCall ToolCallProgress ToolCallStarted Usage"
    ),
    "treadle.client.lifecycle": "InitializeResponse ServerInfo",
    "treadle.client.notification": "Notification UnknownNotification",
    "treadle.client.params": "TurnOptions",
    "treadle.protocol.app.base": "JsonObject Unknown",
}
# Unions that the official SDK wraps in a class with a `root`: here they can be called with one.
ROOTS: Final = "Account AskForApproval LoginAccountParams SandboxPolicy ThreadListCwdFilter ThreadStatus"

HEAD: Final = '''"""The values of the protocol, and the events of the SDK: for annotations, matching and enums.

Made by scripts/make_types.py. `Thread` and `Turn` here are what a server says of them; `treadle.Thread` is
what you work with.
"""

# fmt: off
# isort: off
from __future__ import annotations

from typing import TYPE_CHECKING, get_args

'''


PAYLOADS_HEAD: Final = '''"""`NotificationPayload`: what the notifications of a server carry, as one union.

Made by scripts/make_types.py.
"""

# fmt: off
# isort: off
from __future__ import annotations

'''


def main() -> int:
    return write({PAYLOADS: render_payloads(), TARGET: render()})


def render_payloads() -> str:
    found: dict[str, list[str]] = defaultdict(list)
    for struct in dict.fromkeys(NOTIFICATIONS.values()):  # two methods may share one
        found[struct.__module__].append(struct.__name__)
    names = sorted({name for names in found.values() for name in names})
    union = _packed(names, "    | ", " | ").replace("    | ", "    ", 1)
    return f"{PAYLOADS_HEAD}{_imports(found)}\n\nNotificationPayload = (\n{union}\n)\n"


def render() -> str:
    # `PAYLOADS` also before it is written for the first time.
    modules = sorted({*(path for path in PROTOCOL.glob("*.py") if path.stem not in INSIDE), PAYLOADS})
    found = {f"treadle.protocol.app.{path.stem}": _names(path) for path in modules}
    for module, names in OTHERS.items():
        found[module] = [*found.get(module, ()), *names.split()]
    every = sorted([*(name for names in found.values() for name in names), "ThreadListCwdFilter"])
    assert len(set(every)) == len(every), [name for name in every if every.count(name) > 1]
    roots = "\n".join(f'    {name} = _union("{name}", get_args({name}))' for name in ROOTS.split())
    listed = _packed([f'"{name}"' for name in every], "    ", ", ", end=",")
    return (
        f"{HEAD}{_imports(found)}\nfrom treadle.protocol.app.base import union as _union\n\n"
        "ThreadListCwdFilter = str | list[str]\n\n"
        f"if not TYPE_CHECKING:\n    # As in the official SDK: `SandboxPolicy(root=…)` is what it is given.\n{roots}\n"
        f"\n__all__ = [\n{listed}\n]\n"
    )


def _imports(found: Mapping[str, list[str]]) -> str:
    return "\n".join(_packed(sorted(names), f"from {module} import ", ", ") for module, names in sorted(found.items()))


def _packed(names: list[str], start: str, between: str, end: str = "") -> str:
    """Lines with as many names as fit; each begins with `start` and ends with `end`."""
    lines = [start + names[0]]
    for name in names[1:]:
        if len(lines[-1] + between + name + end) > WIDTH:
            lines.append(start + name)
        else:
            lines[-1] += between + name
    return "\n".join(line + end for line in lines)


def _names(path: Path) -> list[str]:
    """What a module defines, not what it imports."""
    if path == PAYLOADS:
        return ["NotificationPayload"]
    names: list[str] = []
    body = ast.parse(path.read_text()).body
    conditional = [inner for node in body if isinstance(node, ast.If) for inner in node.body]  # `if TYPE_CHECKING`
    for node in [*body, *conditional]:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return sorted({name for name in names if name[0].isupper()})


if __name__ == "__main__":
    raise SystemExit(main())
