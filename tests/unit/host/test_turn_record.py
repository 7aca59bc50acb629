"""What is known of a turn so far."""

from __future__ import annotations

from treadle.host import MAX_NOTICES, Notice, Timeouts, TurnProgress, TurnWatch, UsageMeter


def test_what_still_matters_when_the_turn_is_over_is_in_its_result_once_and_not_endlessly() -> None:
    record = TurnProgress(TurnWatch(Timeouts(), 0.0), UsageMeter())
    record.take(Notice("It is asked again."), 1.0)
    assert record.notices == []
    for _ in range(3):
        record.take(Notice("Tools cannot be given.", keep=True), 1.0)
    assert record.notices == ["Tools cannot be given."]
    for number in range(1000):
        record.take(Notice(f"notice {number}", keep=True), 1.0)
    assert len(record.notices) == MAX_NOTICES
