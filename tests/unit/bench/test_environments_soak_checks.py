"""The checker of the environments soak finds what it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.environments_soak.calls import PATCHED, Lines, Patch, Seen, Typed


def lines(folder: Path, *, runs: int = 1, **more: Any) -> Lines:
    call = Lines("call", folder, folder, count=3, **more)
    (folder / "ran").write_text("call 999999999\n" * runs)
    (folder / "call.truth").write_text(call.printed() or "")
    return call


def seen(output: str, **more: Any) -> Seen:
    item = {"id": "call", "status": "completed", "exitCode": 0, "aggregatedOutput": output}
    told = [f"Process exited with code 0\nOutput:\n{output}"]
    given = {"item": item, "completed": [item], "deltas": [(1, output)], "told": told, "asked": 0}
    return Seen(**{**given, "may_lose": False, "killed": None, **more})


def test_what_is_right_is_no_problem(tmp_path: Path) -> None:
    call = lines(tmp_path)
    assert list(call.check(seen(call.printed() or ""))) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + text[-5:],
        lambda text: text.replace("call 1", "call 2"),
        lambda text: "".join(reversed(text.splitlines(keepends=True))),
        lambda text: text.replace("€", "\ufffd"),
    ],
    ids=["lost", "doubled", "other", "order", "torn"],
)
@pytest.mark.parametrize("where", ["item", "deltas", "told"])
def test_a_byte_that_is_lost_doubled_or_elsewhere_is_found(tmp_path: Path, spoil: Any, where: str) -> None:
    call = lines(tmp_path)
    right, wrong = call.printed() or "", spoil(call.printed())
    right_seen, wrong_seen = seen(right), seen(wrong)
    setattr(right_seen, where, getattr(wrong_seen, where))
    assert list(call.check(right_seen))


def test_a_command_that_ran_twice_is_found(tmp_path: Path) -> None:
    call = lines(tmp_path, runs=2)
    assert "ran 2 times" in list(call.check(seen(call.printed() or "")))


def test_one_that_was_declined_and_ran_is_found(tmp_path: Path) -> None:
    call = lines(tmp_path, answer="decline")
    assert any("was declined" in problem for problem in call.check(seen(call.printed() or "")))


def test_a_command_is_lost_only_where_it_may_be_and_not_in_silence(tmp_path: Path) -> None:
    call = lines(tmp_path)
    begin = (call.printed() or "")[:20]
    lost = {"id": "call", "status": "failed", "exitCode": -1, "aggregatedOutput": begin}
    told = [f"Output:\n{begin}\n[the command was lost, and how it ended is not known: gone]"]
    given = {"item": lost, "completed": [lost], "deltas": [(1, begin)], "told": told}
    assert list(call.check(seen("", **given, may_lose=True))) == []
    assert any("was lost" in problem for problem in call.check(seen("", **given)))
    assert any(
        "the model was told" in problem for problem in call.check(seen("", **{**given, "told": []}, may_lose=True))
    )


def test_an_input_that_arrived_twice_is_found(tmp_path: Path) -> None:
    call = Typed("call", tmp_path, tmp_path, count=1)
    (tmp_path / "ran").write_text("call 999999999\n")
    (tmp_path / "call.truth").write_text("ready\ngot 0\n")
    (tmp_path / "call.typed").write_text("0\n0\nend\n")
    assert any("what was typed arrived as" in problem for problem in call.check(seen("ready\ngot 0\n")))


def test_a_patch_that_was_applied_twice_or_in_silence_is_found(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    Patch.prepare(tmp_path)
    call = Patch("call", tmp_path, tmp_path)
    call.steps()
    item = {"id": "call", "status": "completed"}
    right = seen("", item=item, completed=[item], told=["Success. Updated the following files:"])
    for number in range(PATCHED):
        (tmp_path / f"f{number}").write_text("start\ncall\nend\n")
    (tmp_path / "new/call").write_text("new\n")
    assert list(call.check(right)) == []
    failed = {"id": "call", "status": "failed"}
    silent = seen("", item=failed, completed=[failed], told=["everything was put back, no file is changed"])
    assert any("was not told" in problem for problem in call.check(silent))
    (tmp_path / "f1").write_text("start\ncall\ncall\nend\n")
    assert any("patched 2 times" in problem for problem in call.check(right))
