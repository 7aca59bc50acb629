"""One memory, many processes: nothing is lost when all write at once, nor when one is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from treadle.host import MemoryStore, parse, render

ADD = """
import sys
from treadle.host.memory.memory_files import MemoryStore
memory = MemoryStore(sys.argv[1], memory_limit=50_000, lock_wait_s=60)
for number in range(10):
    memory.add(f"entry {sys.argv[2]}-{number}")
"""

# Writes two versions in turn, for ever, and says when the first is there.
REWRITE = """
import sys
from treadle.host.memory.memory_files import MemoryStore
memory = MemoryStore(sys.argv[1], memory_limit=100_000)
texts = ["a" * 20_000, "b" * 20_000]
if not memory.entries():
    memory.add(texts[0])
print("ready", flush=True)
while True:
    for text in (texts[1], texts[0]):
        (old,) = memory.entries()
        memory.replace(old, text)
"""


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", ADD, str(tmp_path / "memory")]
    workers = [subprocess.Popen([*arguments, str(number)]) for number in range(4)]
    assert [worker.wait(100) for worker in workers] == [0] * 4
    wanted = {f"entry {worker}-{number}" for worker in range(4) for number in range(10)}
    entries = MemoryStore(tmp_path / "memory").entries()
    assert set(entries) == wanted
    assert len(entries) == len(wanted)


def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    path = folder / "MEMORY.md"
    versions = {render((letter * 20_000,)) for letter in "ab"}
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", REWRITE, str(folder)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            # At any moment there is a whole file: watched until it has changed a few times, then killed.
            try:
                changes, last = 0, path.read_text()
                while changes < 3:
                    now = path.read_text()
                    assert now in versions
                    changes, last = changes + (now != last), now
            finally:
                writer.kill()
        assert path.read_text() in versions
    # The lock ended with its holder, and what the last one left is cleared away.
    memory = MemoryStore(folder, memory_limit=100_000)
    (old,) = memory.entries()
    memory.replace(old, "all is well")
    assert parse(path.read_text()) == ("all is well",)
    assert not list(folder.glob(".*.new"))
