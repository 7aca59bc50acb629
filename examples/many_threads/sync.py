"""Run several agents at the same time, on one connection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from treadle import Codex, TurnResult

QUESTIONS = ("What is this?", "Who wrote it?", "Is it tested?", "What is missing?", "What would you do next?")


def main() -> None:
    with Codex() as codex:

        def ask(question: str) -> TurnResult:
            return codex.thread_start(ephemeral=True).run(question)

        # A client may be used from any number of Python threads.
        with ThreadPoolExecutor(max_workers=len(QUESTIONS)) as pool:
            for question, result in zip(QUESTIONS, pool.map(ask, QUESTIONS), strict=True):
                tokens = result.usage.total.total_tokens if result.usage else 0
                print(f"{question:25}{result.status.value} in {result.duration_ms} ms, {tokens} tokens")


if __name__ == "__main__":
    main()
