"""A thread's state is assigned in the thread's own module and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import treadle

PACKAGE = Path(treadle.__file__).parent
OWN = PACKAGE / "agent" / "thread" / "thread.py"


def _assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
        for target in targets:
            yield from (each for each in ast.walk(target or ast.Pass()) if isinstance(each, ast.Attribute))


def _of_a_thread(target: ast.Attribute) -> bool:
    """`thread.x`, `self._thread.x`, `turn.thread.x`: whatever is called a thread is one."""
    owner = target.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name in ("thread", "_thread") and isinstance(target.ctx, ast.Store | ast.Del)


def test_only_the_module_of_the_thread_assigns_to_it() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{target.lineno} {ast.unparse(target)}"
        for folder in ("agent", "server", "tools")
        for path in (PACKAGE / folder).rglob("*.py")
        if path != OWN
        for target in _assigned(ast.parse(path.read_text(encoding="utf-8")))
        if _of_a_thread(target)
    ]
    assert found == []


def test_the_rule_sees_an_assignment() -> None:
    tree = ast.parse("thread.turn = None\nself._thread.state += 1\nturn.thread.queued, x = True, 1\nthread.goal.set()")
    assert [target.attr for target in _assigned(tree) if _of_a_thread(target)] == ["turn", "state", "queued"]
