"""The item type of CONTRIBUTING, added to a copy of the package the way the recipe says: a class, and a line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import treadle

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = (REPOSITORY / "CONTRIBUTING.md").read_text()
DEADLINE_S = 100

# What somebody does who has an item type of their own: a tool shows one, and everybody looks at it.
PROGRAM = """\
import json
import sys
from pathlib import Path
from treadle import Codex
from treadle.agent.tools import built_in
from treadle.agent.tools.tool import Tool
from treadle.cli.exec.exec_events import described
from treadle.cli.turn.plain_turn import PlainTurn
from treadle.host.projection import project
from treadle.testing import AppServerHarness
from treadle.tools.specs import function_spec
from treadle.types import DiceRollThreadItem, ItemCompletedNotification


class RollDice(Tool):
    name = "roll_dice"
    spec = function_spec(name, "Rolls a die.", {})

    async def run(self, call):
        call.turn.items.show(DiceRollThreadItem(id=call.id, sides=6, rolled=4))
        return "rolled 4"


built_in.BUILT_IN += (RollDice(),)
with AppServerHarness(Path(sys.argv[1])) as harness:
    harness.model.enqueue_function_call("roll_dice", {}, call_id="c1")
    harness.model.enqueue_assistant_message("four")
    with Codex(harness.codex_config()) as codex:
        thread = codex.thread_start()
        events = list(thread.events("roll"))
        kept = thread.read(include_turns=True).thread.turns[0].items
items = [item for item in kept if isinstance(item, DiceRollThreadItem)]
terminal = []
for item in items:
    PlainTurn(terminal.append, color=False).show("item/completed", ItemCompletedNotification(
        item=item, thread_id="t", turn_id="u", completed_at_ms=0
    ))
print(json.dumps({
    "sdk": [[event.tool, event.arguments, event.item_id] for event in events if event.kind == "tool_call"],
    "result": [item.type for item in events[-1].result.items],
    "kept": [[item.id, item.sides, item.rolled] for item in items],
    "chat": project(items).messages,
    "terminal": "".join(terminal),
    "exec --json": [described(item) for item in items],
}))
"""


def _follow(copy: Path) -> None:
    """The two edits."""
    (code,) = re.findall(
        r"^   ```python\n(   from [^`]*?class DiceRollThreadItem.*?)^   ```", RECIPES, re.DOTALL | re.MULTILINE
    )
    (line,) = re.findall(r"^2\. Its line in `KnownItem`, in the same file: `(.*?)`\.", RECIPES, re.MULTILINE)
    imports, _, made = dedent(code).partition("\n\n\n")
    file = copy / "treadle" / "protocol" / "app" / "items.py"
    text = file.read_text()
    for before, more in (
        ("from msgspec import", f"{imports}\n"),
        ("KnownItem = (\n", f"{made}\n\n"),
        ("    | HookPromptThreadItem\n", f"    {line}\n"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, f"{more}{before}")
    file.write_text(text)


def _python(copy: Path, *arguments: str | Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy}:{REPOSITORY}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(copy),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=copy, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recipe(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    source = Path(treadle.__file__).parent
    shutil.copytree(source, copy / "treadle", ignore=shutil.ignore_patterns("__pycache__"))
    _follow(copy)
    _python(copy, "-m", "scripts.make_types")
    seen = json.loads(_python(copy, "-c", PROGRAM, tmp_path / "server"))
    assert seen["sdk"] == [["roll_dice", {"sides": 6}, "c1"]]
    assert seen["result"] == ["diceRoll", "agentMessage"]
    assert seen["kept"] == [["c1", 6, 4]]
    call, result = seen["chat"]
    assert call["tool_calls"][0]["function"] == {"name": "roll_dice", "arguments": '{"sides": 6}'}
    assert result["content"] == "rolled 4"
    assert seen["terminal"] == "roll_dice: completed\n"
    assert seen["exec --json"] == [None]
