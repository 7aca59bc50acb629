"""`python -m bench search`: how long it takes to find something among many messages.

The messages lie in a home of their own, half of them in one thread. Each question goes to an app-server in a process of
its own: cold is its first request, with no page of the database in memory (where the file system can drop them), warm
the median of those after it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from bench import machine
from treadle.agent.thread.thread_state import Settings, State
from treadle.protocol.app.items import AgentMessageThreadItem
from treadle.protocol.app.ours import MessageSearchParams
from treadle.protocol.app.settings import DangerFullAccessSandboxPolicy
from treadle.protocol.app.thread_history import ThreadSearchOccurrencesParams, ThreadSearchParams
from treadle.store.contract import ItemRecord, ThreadRecord, TurnRecord, Write
from treadle.store.sqlite.sqlite_store import FILE_NAME, open_sqlite

MESSAGES: Final = 100_000
# In every thread but the long one.
OF_A_THREAD: Final = 100
LONG: Final = "0199a213-81a0-7e00-8000-000000000000"
_SETTINGS: Final = Settings(
    model="model", model_provider="provider", cwd="/", approval_policy="never", sandbox=DangerFullAccessSandboxPolicy()
)
_STATE: Final = msgspec.json.encode(State(settings=_SETTINGS))
WARM_MS, COLD_MS = 100, 300
WARM_REQUESTS: Final = 9
# In each message; in one of a hundred; in one of ten thousand; nowhere.
COMMON, SOME, RARE, MISSING = "weaving", "shuttle", "grünspan", "übermorgen"
_ALL, _ONE, _BEST = "thread/search", "thread/searchOccurrences", "thread/messages/search"
_PARAMS: Final[dict[str, Callable[[str], Any]]] = {
    _ALL: lambda term: ThreadSearchParams(search_term=term),
    _ONE: lambda term: ThreadSearchOccurrencesParams(thread_id=LONG, search_term=term),
    _BEST: lambda term: MessageSearchParams(search_term=term),
}
QUESTIONS: Final[tuple[tuple[str, str], ...]] = (
    (_ALL, COMMON),
    (_ALL, "we"),
    (_ALL, SOME),
    (_ALL, RARE),
    (_ALL, f"{COMMON} {SOME}"),
    (_ALL, MISSING),
    (_ONE, COMMON),
    (_ONE, "huttl"),
    (_ONE, "RÜNSPA"),
    (_ONE, MISSING),
    (_ONE, "ткань"),
    (_BEST, COMMON),
    (_BEST, RARE),
)


class Asked(msgspec.Struct):
    """What one process measured, in milliseconds; `cpu` is what a warm request took of it, whoever else was at work.

    `found` is how many results came.
    """

    cold: float
    warm: float
    cpu: float
    found: int


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench search", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="processes for each question (default 5)")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help=f"default {MESSAGES}")
    parser.add_argument("--home", type=Path, help="where the messages are, or are written to, and stay")
    options = parser.parse_args(arguments)
    print("\n".join(f"{name}: {value}" for name, value in machine.facts([]).items()), file=sys.stderr)
    with TemporaryDirectory(prefix="treadle-bench-") as folder:
        home = options.home or Path(folder)
        if not (home / FILE_NAME).exists():
            asyncio.run(write(home, options.messages))
        print("| method | term | found | warm, ms | CPU of it, ms | cold, ms |\n|---|---|---|---|---|---|")
        for method, term in QUESTIONS:
            asked = [ask_anew(home, method, term) for _ in range(options.rounds)]
            warm = _shown([each.warm for each in asked], WARM_MS)
            cpu = _shown([each.cpu for each in asked], WARM_MS)
            cold = _shown([each.cold for each in asked], COLD_MS)
            print(f"| `{method}` | {term} | {asked[0].found} | {warm} | {cpu} | {cold} |", flush=True)
    return 0


def _shown(values: Sequence[float], limit: float) -> str:
    median = statistics.median(values)
    text = f"{median:.1f} ({min(values):.1f} – {max(values):.1f})"
    return text if median <= limit else f"**{text}**"


# --- what is searched ------------------------------------------------------------------------------------------------


async def write(home: Path, messages: int) -> None:
    """Half of the messages go to the long thread, the others to as many as it takes."""
    text = texts()
    store = await open_sqlite(home)
    counts = [messages // 2] + [OF_A_THREAD] * (messages // 2 // OF_A_THREAD)
    for number, count in enumerate(counts):
        thread_id = f"{LONG[:-8]}{number:08x}"
        writes = list(_thread(thread_id, number, [next(text) for _ in range(count)]))
        for start in range(0, len(writes), 2_000):
            await store.commit(thread_id, 0, writes[start : start + 2_000])
    await store.close()


def texts() -> Iterator[str]:
    """Sentences from the same seed each time: few words are frequent and most are rare, as in any language."""
    chance = random.Random(1)
    scripts = ("etaoinshrdlucmfwypvbgkqjxzäöüé", "оеаинтсрвлкмдпуяызьбгчйхжшюцщэ")
    words = ["".join(chance.choices(chance.choice(scripts), k=chance.randint(2, 11))) for _ in range(30_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    number = 0
    while True:
        number += 1
        chosen = chance.choices(words, weights, k=chance.randint(5, 75))
        marks = [COMMON, *([SOME] if number % 100 == 0 else []), *([RARE] if number % 10_000 == 0 else [])]
        place = chance.randrange(len(chosen))
        yield " ".join([*chosen[:place], *marks, *chosen[place:]])


def _thread(thread_id: str, number: int, said: Sequence[str]) -> Iterator[Write]:
    stamp = 1_700_000_000_000 + number
    yield ThreadRecord(
        id=thread_id,
        created_at=stamp,
        updated_at=stamp,
        recency_at=stamp,
        cwd="/",
        model="model",
        model_provider="provider",
        source="cli",
        state=_STATE,
        preview=said[0],
        listed=True,
    )
    for index, text in enumerate(said, 1):
        turn = (index + 1) // 2
        if index % 2:
            yield TurnRecord(thread_id=thread_id, number=turn, id=f"turn-{turn}", status="completed")
        item = AgentMessageThreadItem(id=f"item-{index}", text=text)
        data = msgspec.json.encode(item)
        yield ItemRecord(
            thread_id=thread_id, number=index, turn=turn, id=item.id, type="agentMessage", data=data, text=text
        )


# --- one question ----------------------------------------------------------------------------------------------------


def ask_anew(home: Path, method: str, term: str) -> Asked:
    drop_pages(home / FILE_NAME)
    command = [sys.executable, "-m", "bench.search", str(home), method, term]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE, timeout=600)
    return msgspec.json.decode(done.stdout, type=Asked)


def drop_pages(path: Path) -> None:
    """Leave nothing of a file in the page cache."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def ask(home: Path, method: str, term: str) -> Asked:
    from treadle.protocol.app.base import encode
    from treadle.server.app import AppServer
    from treadle.server.methods import search_methods  # noqa: F401  what is loaded once is not the search's
    from treadle.testing import HarnessClient

    async with AppServer(home=home) as server:
        client = HarnessClient(server)
        info = {"name": "bench", "version": "1"}
        await client.request("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        params = msgspec.json.decode(encode(_PARAMS[method](term)))

        async def once() -> tuple[float, float, int]:
            began, cpu = time.perf_counter(), time.process_time()
            answer: Any = await client.request(method, params)
            return (time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3, len(answer["data"])

        cold, _, found = await once()
        warm = [await once() for _ in range(WARM_REQUESTS)]
        wall, cpu = (statistics.median(one[column] for one in warm) for column in (0, 1))
        return Asked(cold, wall, cpu, found)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(ask(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))))
