"""Run several agents at the same time, on one connection."""

from __future__ import annotations

import asyncio

from treadle import AsyncCodex, TurnResult

QUESTIONS = ("What is this?", "Who wrote it?", "Is it tested?", "What is missing?", "What would you do next?")


async def main() -> None:
    async with AsyncCodex() as codex:

        async def ask(question: str) -> TurnResult:
            thread = await codex.thread_start(ephemeral=True)
            return await thread.run(question)

        # If one fails the others are cancelled, and with them their turns on the server.
        async with asyncio.TaskGroup() as group:
            asked = {question: group.create_task(ask(question)) for question in QUESTIONS}

        for question, task in asked.items():
            result = task.result()
            tokens = result.usage.total.total_tokens if result.usage else 0
            print(f"{question:25}{result.status.value} in {result.duration_ms} ms, {tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
