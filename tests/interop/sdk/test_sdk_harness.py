"""The harness itself: what it must notice. Needs the SDK, but no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.sdk.interpreter import ScenarioFailed, SdkInterpreter
from interop.sdk.normal import normal

pytestmark = pytest.mark.interop


def test_a_notification_without_a_required_field_is_noticed(sdk: SdkInterpreter, tmp_path: Path) -> None:
    answer = sdk.play("harness.misfit", program=Path("no-server"), folder=tmp_path, face="sync")
    assert answer == {"seen": "played", "unknown": ["item/started"], "sent": []}


def test_a_scenario_that_raises_fails_with_its_traceback(sdk: SdkInterpreter, tmp_path: Path) -> None:
    with pytest.raises(ScenarioFailed, match="LookupError: nothing in home"):
        sdk.play("harness.broken", program=Path("no-server"), folder=tmp_path, face="sync")


def test_an_interpreter_that_ends_fails_its_scenario_and_is_replaced(sdk_library: Path, tmp_path: Path) -> None:
    interpreter = SdkInterpreter(sdk_library, tmp_path)
    try:
        with pytest.raises(ScenarioFailed, match="no_such_module"):
            interpreter.play("no_such_module.any", program=Path("no-server"), folder=tmp_path, face="sync")
        with pytest.raises(ScenarioFailed, match="ended in harness"):
            interpreter.play("harness.gone", program=Path("no-server"), folder=tmp_path, face="sync")
        answer = interpreter.play("harness.misfit", program=Path("no-server"), folder=tmp_path, face="sync")
        assert answer["seen"] == "played"
    finally:
        interpreter.close()


def test_only_what_is_different_in_every_run_is_not_compared() -> None:
    name = "01a1dd9c-3d5a-71a0-99d1-f681687985a4"
    value = {
        "id": name,
        "path": f"/tmp/x/home/sessions/2026/11/15/rollout-2026-11-15T08-54-03-{name}.jsonl",
        "created_at": 1790000000,
        "updatedAt": None,
        "processId": "123",
        "items": [{"durationMs": 5, "status": "completed", "text": "http://127.0.0.1:4242/v1", "n": 7}],
    }
    assert normal(value, Path("/tmp/x")) == {
        "id": "ID",
        "path": "FOLDER/home/sessions/DAY/rollout-TIME-ID.jsonl",
        "created_at": "TIME",
        "updatedAt": None,
        "processId": "PROCESS",
        "items": [{"durationMs": "TIME", "status": "completed", "text": "http://127.0.0.1:PORT/v1", "n": 7}],
    }
