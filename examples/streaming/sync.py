"""Show what an agent does while it does it."""

from __future__ import annotations

from collections import Counter

from treadle import Codex, Sandbox
from treadle.types import CommandFinished, CommandStarted, Done, FileChange, Plan, TextDelta


def main() -> None:
    with Codex() as codex:
        thread = codex.thread_start(sandbox=Sandbox.workspace_write)

        for event in thread.events("Look around and leave a note."):
            match event:
                case Plan(steps=steps):
                    for step in steps:
                        print(f"  plan     {step.step}")
                case CommandStarted(command=command):
                    print(f"  command  {command}")
                case CommandFinished(exit_code=code, duration_ms=duration):
                    print(f"           exit code {code} after {duration} ms")
                case FileChange(paths=paths, status=status):
                    print(f"  patch    {', '.join(paths)}: {status}")
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case Done(result=result):
                    print(f"\n  {result.status.value} after {result.duration_ms} ms\n")

        # The same, with everything that the server says and in its own words.
        turn = thread.turn("Look again.")
        told = Counter(notification.method for notification in turn.stream())
        for method, count in told.most_common():
            print(f"  {count:4} x {method}")


if __name__ == "__main__":
    main()
