"""The method of CONTRIBUTING, added to a copy of the repository the way the recipe says, and others of any name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPE = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("### Add a method\n")[2].partition("\n### ")[0]
DEADLINE_S = 100
# Names that are keywords, that the clients have already, or that are no names in Python.
NAMES = {
    "loom/weave": "loom_weave",
    "import": "import_",
    "close": "close_",
    "request": "request_",
    "2fa/read-it": "call_2fa_read_it",
    "thread/asURL": "thread_as_url",
}
PROGRAM = """\
import asyncio, inspect, json, sys
from treadle.client import AppServerClient, AsyncAppServerClient
from treadle.testing import AppServerHarness


async def ask():
    with AppServerHarness(sys.argv[1]) as harness:
        harness.model.enqueue_assistant_message("hi")
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            await client.run_turn(thread, "the beginning")
            peeked = await client.request("thread/peek", {"threadId": thread})
            return peeked, [await client.request(name, {"threadId": thread}) for name in json.loads(sys.argv[2])]


names = json.loads(sys.argv[2])
peeked, others = asyncio.run(ask())
kinds = (AppServerClient, AsyncAppServerClient)
docs = {name: [inspect.getdoc(getattr(kind, name)) for kind in kinds] for name in names.values()}
print(json.dumps({"peeked": peeked, "others": others, "docs": docs}))
"""


def _edit(file: Path, before: str, more: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1, before
    file.write_text(text.replace(before, f"{more}{before}"))


def _follow(copy: Path) -> None:
    blocks = re.findall(r"^   ```python\n(.*?)^   ```", RECIPE, re.DOTALL | re.MULTILINE)
    structs, handler = map(dedent, blocks)
    (line,) = re.findall(r"^3\. Its line in `RECORDS` \(`protocol/app/methods.py`\): `(.*?)`\.", RECIPE, re.MULTILINE)
    protocol, methods = copy / "src/treadle/protocol/app", copy / "src/treadle/server/methods"
    ours = protocol / "ours.py"
    ours.write_text(f"{ours.read_text()}\n\n{structs}")
    (methods / "peeking.py").write_text(handler)
    lines = [line]
    # The same for methods that are not said to be ours: as if Codex had them.
    for number, name in enumerate(NAMES):
        stem = f"Other{number}"
        history = protocol / "thread_history.py"
        history.write_text(f"{history.read_text()}\n\n{structs.replace('ThreadPeek', stem)}")
        other = handler.replace("ThreadPeek", stem).replace("app.ours", "app.thread_history")
        (methods / f"other{number}.py").write_text(other)
        lines.append(f'"{name}": Method("thread_history.{stem}", "other{number}.peek"),')
    _edit(protocol / "methods.py", '    "thread/start": Method(', "".join(f"    {each}\n" for each in lines))


def _python(copy: Path, *arguments: str | Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}:{copy}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(copy),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=copy, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _generate(copy: Path) -> None:
    """What `make generate` runs."""
    makefile = (copy / "Makefile").read_text()
    (commands,) = re.findall(r"^generate:.*\n((?:\t@\$\(BIN\)/python .*\n)+)", makefile, re.MULTILINE)
    scripts = re.findall(r"python (.*)", commands)
    assert len(scripts) >= 5
    for script in scripts:
        _python(copy, *script.split())


@pytest.mark.timeout(400)  # ten programs, each with a deadline of its own
def test_the_recipe(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("src", "scripts", "docs"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, copy / name)
    _follow(copy)
    _generate(copy)
    seen = json.loads(_python(copy, "-c", PROGRAM, tmp_path / "server", json.dumps(NAMES)))
    assert seen["peeked"] == {"preview": "the beginning"}
    assert seen["others"] == [seen["peeked"]] * len(NAMES)
    for name, called in NAMES.items():
        assert seen["docs"][called] == [f"Read how a thread begins. (`{name}`)"] * 2
