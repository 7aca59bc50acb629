"""Get the answer as an object instead of a text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Literal

from treadle import AsyncCodex, CodexConfig, OutputError
from treadle.testing import AppServerHarness


@dataclass
class Finding:
    file: str
    line: int
    severity: Literal["low", "high"]


@dataclass
class Review:
    summary: str
    findings: list[Finding]


async def main(config: CodexConfig | None = None) -> None:
    async with AsyncCodex(config) as codex:
        thread = await codex.thread_start()
        result = await thread.run("Review the last change.", output_type=Review)
        review: Review = result.output
        print(review.summary)
        for finding in review.findings:
            print(f"  {finding.severity:5} {finding.file}:{finding.line}")

        # A model whose answer does not fit is told what is wrong and asked again; here it is not.
        try:
            await thread.run("And the one before.", output_type=Review, output_retries=0)
        except OutputError as error:
            print(f"not a review: {error}")


if __name__ == "__main__":
    # Here a script plays the model. With a real model, main() is all.
    with TemporaryDirectory() as folder, AppServerHarness(folder) as harness:
        finding = '{"file": "shop.py", "line": 12, "severity": "high"}'
        harness.model.enqueue_assistant_message(f'{{"summary": "One thing to fix.", "findings": [{finding}]}}')
        harness.model.enqueue_assistant_message('{"summary": "Fine.", "findings": [{"file": "shop.py", "line": "?"}]}')
        asyncio.run(main(harness.codex_config()))
