"""What people read of a review, whatever the reviewer wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.agent import report_text


def finding(title: str = "T", body: str = "B", start: int = 1, end: int = 2) -> dict[str, Any]:
    place = {"absolute_file_path": "/a", "line_range": {"start": start, "end": end}}
    return {"title": title, "body": body, "confidence_score": 1, "priority": None, "code_location": place}


def answer(*findings: dict[str, Any], explanation: str = "So so.") -> str:
    return json.dumps({"findings": findings, "overall_correctness": "", "overall_explanation": explanation})


ONE = "So so.\n\nReview comment:\n\n- T — /a:1-2\n  B"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (answer(finding()), ONE),
        (f"```json\n{answer(finding())}\n```", ONE),
        (f"Here it is: {answer(finding())} Bye.", ONE),
        (answer(explanation=" Good. \n"), "Good."),
        (answer(finding(), explanation=""), "Review comment:\n\n- T — /a:1-2\n  B"),
        (
            answer(finding("A\n b ", "\none\n\ntwo\n"), finding("C", "", 5, 5)),
            "So so.\n\nFull review comments:\n\n- A b — /a:1-2\n  one\n  \n  two\n\n- C — /a:5-5",
        ),
        (answer(explanation=""), ""),
        (" plain words ", "plain words"),
        ("", ""),
        ("} {", "} {"),
        ('{"findings": 3}', '{"findings": 3}'),
        ('{"findings": []}', '{"findings": []}'),
    ],
)
def test_the_report(said: str, text: str) -> None:
    assert report_text(said) == text


def test_an_answer_that_is_nested_too_deep_is_taken_as_words() -> None:
    said = '{"findings":' + "[" * 100_000
    assert report_text(said) == said
    assert report_text(said + "]" * 100_000 + "}") == said + "]" * 100_000 + "}"
