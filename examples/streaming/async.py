"""Show what an agent does while it does it."""

from __future__ import annotations

import asyncio
from collections import Counter

from treadle import AsyncCodex, Sandbox
from treadle.types import CommandFinished, CommandStarted, Done, FileChange, Plan, TextDelta


async def main() -> None:
    async with AsyncCodex() as codex:
        thread = await codex.thread_start(sandbox=Sandbox.workspace_write)

        async for event in thread.events("Look around and leave a note."):
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
        turn = await thread.turn("Look again.")
        told = Counter([notification.method async for notification in turn.stream()])
        for method, count in told.most_common():
            print(f"  {count:4} x {method}")


if __name__ == "__main__":
    asyncio.run(main())
