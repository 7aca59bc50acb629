"""Get the answer as an object instead of a text."""

from __future__ import annotations

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Literal

from treadle import Codex, CodexConfig, OutputError
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


def main(config: CodexConfig | None = None) -> None:
    with Codex(config) as codex:
        thread = codex.thread_start()
        review: Review = thread.run("Review the last change.", output_type=Review).output
        print(review.summary)
        for finding in review.findings:
            print(f"  {finding.severity:5} {finding.file}:{finding.line}")

        # A model whose answer does not fit is told what is wrong and asked again; here it is not.
        try:
            thread.run("And the one before.", output_type=Review, output_retries=0)
        except OutputError as error:
            print(f"not a review: {error}")


if __name__ == "__main__":
    # Here a script plays the model. With a real model, main() is all.
    with TemporaryDirectory() as folder, AppServerHarness(folder) as harness:
        finding = '{"file": "shop.py", "line": 12, "severity": "high"}'
        harness.model.enqueue_assistant_message(f'{{"summary": "One thing to fix.", "findings": [{finding}]}}')
        harness.model.enqueue_assistant_message('{"summary": "Fine.", "findings": [{"file": "shop.py", "line": "?"}]}')
        main(harness.codex_config())
