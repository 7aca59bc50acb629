"""`@path` in a message: a plain path, a picture that is sent along, or no path at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.cli import ChatMessage, mention, message_of, unfinished_mention


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "with space.txt", "shot.png", "v1."):
        (tmp_path / name).touch()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("look at @src/main.py", "look at src/main.py"),
        ("@src, please", "src, please"),
        ("is it (@src/main.py)?", "is it (src/main.py)?"),
        ('see @"with space.txt" now', 'see "with space.txt" now'),
        ("what is @v1.", "what is v1."),
        ("@pytest.fixture and me@src/main.py", "@pytest.fixture and me@src/main.py"),
        ("@ and @\0 and @missing.py", "@ and @\0 and @missing.py"),
        ("line\n@src/main.py", "line\nsrc/main.py"),
    ],
)
def test_a_file_is_named_by_its_plain_path(folder: str, typed: str, sent: str) -> None:
    assert message_of(typed, folder) == ChatMessage(sent)


def test_a_picture_is_sent_along_once(folder: str) -> None:
    message = message_of("@shot.png and @shot.png", folder, (f"{folder}/other.png",))
    assert message.text == "shot.png and shot.png"
    assert message.items() == [
        {"type": "localImage", "path": f"{folder}/other.png"},
        {"type": "localImage", "path": f"{folder}/shot.png"},
        {"type": "text", "text": "shot.png and shot.png"},
    ]


@pytest.mark.parametrize(
    ("before", "letters"),
    [
        ("@", ""),
        ("look at @src/ma", "src/ma"),
        ('look at @"with sp', "with sp"),
        ("(@ma", "ma"),
        ("me@src", None),
        ("@src/main.py ", None),
        ('@"with space.txt"', None),
        ("plain", None),
    ],
)
def test_what_is_being_typed(before: str, letters: str | None) -> None:
    assert unfinished_mention(before) == letters


def test_a_path_with_a_space_is_quoted(folder: str) -> None:
    assert mention("src/main.py") == "@src/main.py"
    assert message_of(mention("with space.txt"), folder).text == '"with space.txt"'
