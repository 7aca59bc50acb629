"""What a server may sample with."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.agent import sampling_message
from treadle.errors import INVALID_PARAMS, RpcError

TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"role": "user", "content": TEXT}, [{"type": "input_text", "text": "hi"}]),
        ({"role": "assistant", "content": [TEXT, TEXT]}, [{"type": "output_text", "text": "hi"}] * 2),
        (
            {"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
            [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}],
        ),
    ],
)
def test_messages_that_a_model_can_read(given: dict[str, Any], made: list[dict[str, Any]]) -> None:
    assert sampling_message(given) == {"type": "message", "role": given["role"], "content": made}


@pytest.mark.parametrize(
    "given",
    [
        None,
        "hi",
        {"content": TEXT},
        {"role": "developer", "content": TEXT},
        {"role": "user"},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}},
        {"role": "assistant", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
        {"role": "user", "content": {"type": "text", "text": 3}},
    ],
)
def test_others_are_refused(given: Any) -> None:
    with pytest.raises(RpcError) as refused:
        sampling_message(given)
    assert refused.value.code == INVALID_PARAMS
