"""What is made by scripts is as the scripts make it."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.client.router import Router
from treadle.client.shared_router import GUARDED

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.mark.parametrize("script", ["make_calls.py", "make_compat.py", "make_sync.py", "make_types.py"])
def test_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), "--check"], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stdout + done.stderr


def test_a_rule_that_matches_nothing_is_an_error() -> None:
    changed = runpy.run_path(str(SCRIPTS / "make_sync.py"))["changed"]
    assert changed("await it", ((r"\bawait ", ""),), "some.py") == "it"
    with pytest.raises(SystemExit, match=r"some\.py: nothing matches the rule 'no such'"):
        changed("await it", ((r"\bawait ", ""), ("no such", "")), "some.py")


def test_threads_share_every_call_of_the_router() -> None:
    """All that the blocking client calls, but for what looks once into one dict or set, or into nothing."""
    public = {name for name, one in vars(Router).items() if not name.startswith("_") and inspect.isfunction(one)}
    assert public - set(GUARDED) == {"changes", "notification", "peek"}
    assert set(GUARDED) <= public
