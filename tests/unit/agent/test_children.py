"""What a thread knows of its sub-agents: their usage is counted once, whatever the store knows of their ends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from treadle.agent import Child, Turn, Usage
from treadle.llm import TokenUsage
from treadle.store import Loaded, TurnRecord
from unit.agent.bare_thread import THREAD, bare_thread

pytestmark = pytest.mark.anyio
CHILD = "0199a213-81a0-7e00-8000-00000000000b"


async def _nothing(turn: Turn) -> None: ...


async def test_what_a_child_has_used_is_counted_once_also_when_its_server_died(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        await thread.load_history()
        loaded = await thread.store.load(THREAD)
        assert isinstance(loaded, Loaded)
        used = msgspec.json.encode(Usage(total=TokenUsage(total_tokens=30)))
        turns = [
            TurnRecord(thread_id=CHILD, number=1, id="t1", status="completed", usage=used),
            TurnRecord(thread_id=CHILD, number=2, id="t2", status="interrupted"),  # nobody knows what this one has used
        ]
        await thread.store.commit(CHILD, 0, [structs.replace(loaded.record, id=CHILD), *turns])
        thread.change_state(children={CHILD: Child(nickname="Ada")})
        for number in (1, 2):
            thread.children.note_end(CHILD, f"t{number}", wakes=False)
            assert await thread.children.deliver(Turn(thread, _nothing))
            assert thread.state.usage.agents_tokens == 30
            assert thread.state.children[CHILD].tokens == 30
