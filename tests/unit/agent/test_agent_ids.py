from __future__ import annotations

import time
import uuid

from treadle.agent import new_id, now_ms


def test_ids_are_uuids_of_version_7_and_sort_by_time() -> None:
    before = now_ms()
    ids = [new_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
    for text in ids[::1000]:
        made = uuid.UUID(text)
        assert str(made) == text
        assert made.version == 7
        assert made.variant == uuid.RFC_4122
        # Ids run ahead of the clock only as far as many were made in one millisecond.
        assert before <= int(text.replace("-", "")[:12], 16) <= time.time_ns() // 1_000_000 + 10
