"""Write `treadle/types.py`: every public name of the app-server protocol in one place, beside the events of the SDK.

python scripts/make_types.py            # write it
python scripts/make_types.py --check    # say whether it is up to date
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import treadle
from treadle.protocol import app
from treadle.protocol.app.registry import NOTIFICATIONS

PROTOCOL: Final = Path(app.__file__).parent
TARGET: Final = Path(treadle.__file__).parent / "types.py"
PAYLOADS: Final = PROTOCOL / "payloads.py"
# What is for reading and writing the protocol, not for talking about it.
INSIDE: Final = ("base", "methods", "ours", "registry", "tolerant", "__init__", "handshake")
OTHERS: Final = {
    "treadle.client.small_events": (
        "CommandFinished CommandOutput CommandStarted Done Event FileChange Plan PlanStep Problem Reasoning Text "
        "TextDelta TextRestarted ToolCall Usage"
    ),
    "treadle.client.metadata": "InitializeResponse ServerInfo",
    "treadle.client.notification": "Notification UnknownNotification",
    "treadle.client.options": "TurnOptions",
    "treadle.protocol.app.base": "JsonObject Unknown",
}
# Unions that the official SDK wraps in a class with a `root`: here they can be called with one.
ROOTS: Final = "Account AskForApproval LoginAccountParams SandboxPolicy ThreadListCwdFilter ThreadStatus"

HEAD: Final = '''"""The values of the protocol, and the events of the SDK: for annotations, matching and enums.

Made by scripts/make_types.py. `Thread` and `Turn` here are what a server says of them; `treadle.Thread` is
what you work with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

'''


PAYLOADS_HEAD: Final = '''"""`NotificationPayload`: what the notifications of a server carry, as one union.

Made by scripts/make_types.py.
"""

from __future__ import annotations

'''


def main() -> int:
    made = {PAYLOADS: render_payloads(), TARGET: render()}
    if "--check" in sys.argv:
        stale = [path.name for path, text in made.items() if not path.exists() or path.read_text() != text]
        print(f"out of date: {', '.join(stale)}" if stale else "up to date")
        return 1 if stale else 0
    for path, text in made.items():
        path.write_text(text)
    return 0


def render_payloads() -> str:
    structs = sorted((struct.__module__, struct.__name__) for struct in NOTIFICATIONS.values())
    imports = "\n".join(f"from {module} import {name}" for module, name in structs)
    union = "NotificationPayload = (\n    " + "\n    | ".join(sorted({name for _, name in structs})) + "\n)"
    return _tidied(f"{PAYLOADS_HEAD}{imports}\n\n{union}\n", PAYLOADS)


def render() -> str:
    found = {f"treadle.protocol.app.{path.stem}": _names(path) for path in _modules()}
    for module, names in OTHERS.items():
        found[module] = sorted([*found.get(module, ()), *names.split()])
    every = sorted([*(name for names in found.values() for name in names), "ThreadListCwdFilter"])
    assert len(set(every)) == len(every), [name for name in every if every.count(name) > 1]
    imports = "\n".join(f"from {module} import {', '.join(names)}" for module, names in sorted(found.items()))
    roots = "\n".join(f'    {name} = _union("{name}", get_args({name}))' for name in ROOTS.split())
    text = (
        f"{HEAD}{imports}\nfrom treadle.protocol.app.base import union as _union\n\n"
        "ThreadListCwdFilter = str | list[str]\n\n"
        f"if not TYPE_CHECKING:\n    # As in the official SDK: `SandboxPolicy(root=…)` is what it is given.\n{roots}\n"
        f"\n__all__ = {every!r}\n"
    )
    return _tidied(text, TARGET)


def _tidied(text: str, path: Path) -> str:
    for arguments in (("check", "--fix", "--select", "I", "-q"), ("format", "-q")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    return text


def _modules() -> list[Path]:
    """`PAYLOADS` also before it is written for the first time."""
    return sorted({*(path for path in PROTOCOL.glob("*.py") if path.stem not in INSIDE), PAYLOADS})


def _names(path: Path) -> list[str]:
    """What a module defines, not what it imports."""
    if path == PAYLOADS:
        return ["NotificationPayload"]
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return sorted({name for name in names if name[0].isupper()})


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):  # `if TYPE_CHECKING`
            yield from node.body


if __name__ == "__main__":
    sys.exit(main())
