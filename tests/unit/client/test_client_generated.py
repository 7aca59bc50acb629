"""What is made by scripts is as the scripts make it."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.client import client, lifecycle, shell

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.mark.parametrize("script", ["make_calls", "make_internal_names", "make_sync", "make_types"])
def test_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{script}", "--check"],
        cwd=SCRIPTS.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stdout + done.stderr


def test_a_rule_that_matches_nothing_is_an_error() -> None:
    changed = runpy.run_path(str(SCRIPTS / "make_sync.py"))["changed"]
    assert changed("await it", ((r"\bawait ", ""),), "some.py") == "it"
    with pytest.raises(SystemExit, match=r"some\.py: nothing matches the rule 'no such'"):
        changed("await it", ((r"\bawait ", ""), ("no such", "")), "some.py")


def test_threads_share_the_router_under_the_lock() -> None:
    """Every use of the router in the blocking client, but for what looks once into one dict, deque or attribute."""
    free = {"streams", "changes", "take_warning", "warnings", "notification", "failure"}
    unguarded: set[str] = set()

    def visit(node: ast.AST, locked: bool) -> None:
        locked = locked or (isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "self._lock")
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("_router") and not locked:
            unguarded.add(node.attr)
        for child in ast.iter_child_nodes(node):
            visit(child, locked)

    for module in (client, shell, lifecycle):
        visit(ast.parse(inspect.getsource(module)), locked=False)
    assert unguarded <= free
    used = set(re.findall(r"_router\.(\w+)\(", inspect.getsource(client)))
    assert {"receive", "request", "begin_turn", "close", "next_backlog"} <= used
