"""Ask an agent something and look at what it did."""

from __future__ import annotations

from treadle import Codex, Sandbox


def main() -> None:
    with Codex() as codex:
        thread = codex.thread_start(sandbox=Sandbox.workspace_write)
        result = thread.run("Look around and leave a note.")
        print(result.final_response)
        print(f"\n{result.status.value} after {result.duration_ms} ms:", *(item.type for item in result.items))

        # The thread remembers; so does the server, after this program has ended.
        thread.run("And once more.")
        stored = thread.read(include_turns=True).thread
        print(f"thread {stored.id} has {len(stored.turns)} turns")


if __name__ == "__main__":
    main()
