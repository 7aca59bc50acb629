"""The official SDK gives a turn every kind of input. The scenarios are in `scenarios/inputs.py`."""

from __future__ import annotations

import pytest

from interop.sdk.differences import DIFFERENCES, Server
from interop.sdk.interpreter import Play

pytestmark = pytest.mark.interop


def test_texts(play: Play) -> None:
    assert play("inputs.texts") == {
        "said": ["first part", "zweiter Teil ✓", "alone"],
        "content": ["first part", "zweiter Teil ✓"],
    }


def test_images_as_data_and_as_files(play: Play) -> None:
    png = "data:image/png;base64"
    assert play("inputs.images") == {
        "sent": [[png], [png, png]],
        "items": [["text", "image"], ["text", "localImage"]],
        "answers": ["A pixel.", "The same."],
    }


def test_an_image_somewhere_else(play: Play, server: Server) -> None:
    assert play("inputs.remote_image") in DIFFERENCES["remote image"].of(server)


def test_a_skill(play: Play) -> None:
    assert play("inputs.skill") == {"text": True, "content": ["text", "skill"]}


def test_a_mention(play: Play) -> None:
    content = {"type": "mention", "name": "notes", "path": "app://notes"}
    assert play("inputs.mention") == {"status": "completed", "content": content}


def test_a_message_of_another_program(play: Play) -> None:
    assert play("inputs.external") == {
        "items": ["functionCallOutput", "agentMessage"],
        "as user": False,
        "as tool": ["function_call_output"],
    }


def test_too_much_text_is_refused(play: Play) -> None:
    data = {"input_error_code": "input_too_large", "max_chars": 1048576, "actual_chars": 1048577}
    assert play("inputs.too_large") == {"refusal": [-32602, data], "after": "ok"}
