"""The soak of the host, short: `python -m bench host-soak` has the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.host_soak.plan import BY_NAME, Program
from bench.host_soak.soak import soak

# Every kind of fault that does not cost seconds, and what is to be remembered after it.
ON_A_SERVER = (
    "plain tool kill command restart interrupt steer kill-in-words memory plain restart hang-up-once cut-once "
    "interrupt-after-tool restart kill-between plain 401 cut slow 429-for-hours stop-for-a-moment "
    "kill-after-tool restart 500-once interrupt-early plain stop-after-tool command plain"
)
IN_PROCESS = (
    "plain tool restart interrupt steer memory hang-up-once cut-once interrupt-after-tool 401 cut restart plain"
)


@pytest.mark.parametrize(("program", "names"), [("app_server", ON_A_SERVER), ("responses", IN_PROCESS)])
def test_nothing_is_lost_doubled_or_left(
    program: Program, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kinds = [BY_NAME[name] for name in names.split()]
    tally = soak(program, kinds)
    assert tally.problems == []
    assert tally.total == len(kinds)
    assert tally.left["processes"] == tally.left["threads"] == 0
    assert tally.left["descriptors"] <= 0
