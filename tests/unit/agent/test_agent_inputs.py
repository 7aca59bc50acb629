from __future__ import annotations

from pathlib import Path

import pytest

from treadle.agent import MAX_INPUT_CHARS, MAX_SKILL_BYTES, check_input, model_items, text_of
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.execution import ProjectFiles
from treadle.protocol.app import (
    ImageUserInput,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)

pytestmark = pytest.mark.anyio


def test_the_length_is_that_of_all_texts_together() -> None:
    half = TextUserInput(text="é" * (MAX_INPUT_CHARS // 2))
    check_input([half, half])
    with pytest.raises(RpcError) as caught:
        check_input([half, half, TextUserInput(text="x")])
    assert caught.value.code == INVALID_PARAMS
    assert caught.value.data == {
        "input_error_code": "input_too_large",
        "max_chars": MAX_INPUT_CHARS,
        "actual_chars": MAX_INPUT_CHARS + 1,
    }


def test_an_image_must_be_somewhere() -> None:
    check_input([ImageUserInput(url="https://example.org/a.png")])
    with pytest.raises(RpcError, match="an image needs") as caught:
        check_input([ImageUserInput()])
    assert caught.value.code == INVALID_REQUEST


def test_the_preview_is_what_was_typed() -> None:
    parts: list[UserInput] = [TextUserInput(text="a"), ImageUserInput(url="data:,"), TextUserInput(text="b")]
    assert text_of(parts) == "a\nb"
    assert text_of([]) == ""


async def test_nothing_said_is_no_message() -> None:
    assert await model_items([], []) == []
    assert await model_items([MentionUserInput(name="a", path="app://a")], []) == []


async def test_texts_and_images_are_one_message() -> None:
    items = await model_items([TextUserInput(text="a"), ImageUserInput(url="data:,x", detail="low")], [])
    (message,) = items
    assert message["role"] == "user"
    assert message["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:,x", "detail": "low"},
    ]


async def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    parts: list[UserInput] = [
        LocalImageUserInput(path="none.png"),
        LocalImageUserInput(path=str(tmp_path / "dir")),
        SkillUserInput(name="s", path=str(tmp_path / "none.md")),
    ]
    message, skill = await model_items(parts, [ProjectFiles(str(tmp_path), None)])
    assert all("could not be read" in part["text"] for part in message["content"])
    assert "could not be read" in skill["content"][0]["text"]


async def test_a_long_skill_is_cut(tmp_path: Path) -> None:
    (tmp_path / "s.md").write_text("x" * (MAX_SKILL_BYTES + 100))
    (message,) = await model_items([SkillUserInput(name="s", path=str(tmp_path / "s.md"))], [ProjectFiles("/", None)])
    assert message["content"][0]["text"].count("x") == MAX_SKILL_BYTES
