"""Results of MCP tools as a model and the readers of a thread get them."""

from __future__ import annotations

import json
import os
import re
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.mcp import MAX_ITEM_BYTES, ResultFiles, item_result, model_output, prompt_input, results
from treadle.protocol.app import ImageUserInput, TextUserInput
from treadle.tools import tokens
from unit.mcp.offered import DATA, json_values

PNG = b64encode(b"\x89PNG\r\n\x1a\n0123").decode()
JPEG = b64encode(b"\xff\xd8\xff").decode()


def _output(content: list[Any], structured: object = None, **more: Any) -> results.Output:
    return model_output(content, structured, seconds=0.25, **{"keep": lambda text: None, **more})


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _texts(output: results.Output) -> list[str]:
    return [output] if isinstance(output, str) else [part["text"] for part in output if part["type"] == "input_text"]


@pytest.mark.parametrize("line", (DATA / "results.jsonl").read_text().splitlines())
def test_a_result_is_given_to_the_model_as_the_real_program_does(line: str) -> None:
    recorded = json.loads(line)
    result, output = recorded["result"], recorded["output"]
    first = output if isinstance(output, str) else output[0]["text"]
    taken = re.match(r"Wall time: ([0-9.]+) seconds", first)
    assert taken is not None
    made = model_output(
        result["content"], result.get("structuredContent"), seconds=float(taken[1]), keep=lambda text: None
    )
    assert made == output


def test_images_stay_beside_structured_content() -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    made = _output([_text("n is 4"), image], {"n": 4})
    assert _texts(made) == ["Wall time: 0.2500 seconds\nOutput:", '{"n":4}']
    assert made[-1] == {"type": "input_image", "image_url": "data:image/png;base64," + PNG, "detail": "high"}


def test_a_model_without_eyes_is_told_of_the_image() -> None:
    made = _output([{"type": "image", "data": PNG, "mimeType": "image/png"}], sees_images=False)
    assert _texts(made)[1] == "<image content omitted because you do not support image input>"


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "data": b64encode(b"<svg>...").decode(), "mimeType": "image/svg+xml"},
        {"type": "image", "data": b64encode(b"no picture at all").decode(), "mimeType": "image/png"},
        {"type": "image", "data": PNG[:-1], "mimeType": "image/png"},
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": PNG + "A" * results.MAX_IMAGE_CHARS, "mimeType": "image/png"},
    ],
)
def test_an_image_that_no_provider_takes_is_left_out(image: dict[str, str]) -> None:
    assert "omitted" in _texts(_output([image]))[1]


# --- large results ----------------------------------------------------------------------------------------------------


def test_a_large_text_is_cut_in_the_middle_and_kept_as_a_whole() -> None:
    kept: list[str] = []

    def keep(text: str) -> str:
        kept.append(text)
        return "/tmp/folder/result-1.txt"

    whole = "".join(f"line {number:07}\n" for number in range(8000))
    made = _texts(_output([_text(whole)], keep=keep))
    assert kept == [whole]
    assert made[1].startswith("line 0000000\n")
    assert made[1].endswith("line 0007999\n")
    assert "were cut here" in made[1]
    assert (
        made[2]
        == f"[The whole output has {len(whole)} bytes and is in /tmp/folder/result-1.txt: read what you need of it.]"
    )


def test_nothing_is_kept_of_what_is_not_cut() -> None:
    def keep(text: str) -> str:
        raise AssertionError(text)

    _output([_text("small")], keep=keep)


def test_that_nothing_could_be_stored_is_reported() -> None:
    assert _texts(_output([_text("x" * 100_000)]))[-1] == "[The whole output has 100000 bytes; it could not be stored.]"


def test_large_structured_content_is_cut_too() -> None:
    made = _texts(_output([], {"rows": ["x" * 100] * 1000}, keep=lambda text: "/f"))
    assert "were cut here" in made[1]
    assert "/f" in made[2]


@given(
    st.lists(json_values | st.builds(_text, st.text(max_size=400)), max_size=40),
    st.none() | json_values,
    st.integers(200, 2000),
)
def test_any_result_stays_within_its_tokens(content: list[Any], structured: object, limit: int) -> None:
    kept: list[str] = []

    def keep(text: str) -> str:
        kept.append(text)
        return "/tmp/treadle-results-12345678/result-1.txt"

    made = _output(content, structured, max_tokens=limit, keep=keep)
    assert sum(tokens(len(text.encode())) for text in _texts(made)) <= limit
    assert bool(kept) == any("The whole output has" in text for text in _texts(made))
    msgspec.json.encode(made)


@given(st.lists(json_values, max_size=5), json_values)
def test_an_item_is_small_enough_for_its_readers(content: list[Any], structured: object) -> None:
    assert item_result(content, structured, None) == (content, structured, None)


def test_a_result_of_a_mebibyte_is_one_text_in_the_item() -> None:
    content, structured, meta = item_result([_text("x" * MAX_ITEM_BYTES)], {"a": 1}, {"b": 2})
    assert (structured, meta) == (None, None)
    (block,) = content
    assert isinstance(block, dict)
    assert block["type"] == "text"
    assert len(block["text"]) < MAX_ITEM_BYTES / 10


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultFiles:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return ResultFiles()


def test_kept_results_are_for_their_user_only_and_go_with_the_thread(files: ResultFiles, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    path = files.keep("whole")
    assert path is not None
    assert Path(path).read_text() == "whole"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    files.close()
    assert list(tmp_path.iterdir()) == []
    assert files.keep("late") is None


def test_old_results_give_way(files: ResultFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_FILES", 2)
    paths = [files.keep(text) or "" for text in "123"]
    assert [os.path.exists(path) for path in paths] == [False, True, True]
    files.close()


def test_a_folder_that_was_replaced_by_another_is_not_written_to(files: ResultFiles, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "result-1.txt").write_text("precious")
    path = files.keep("whole")
    assert path is not None
    folder = Path(path).parent
    folder.rename(tmp_path / "moved")
    folder.symlink_to(victim)
    files.keep("more")
    files.close()
    assert [(each.name, each.read_text()) for each in victim.iterdir()] == [("result-1.txt", "precious")]


def test_no_place_for_a_file_is_no_failure(files: ResultFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert files.keep("whole") is None


def test_ten_thousand_parts_are_no_ten_thousand_parts_for_the_model() -> None:
    """A thread whose history a provider refuses is lost."""
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    made = _output([*[image] * 10_000, *[_text("x")] * 10_000])
    assert isinstance(made, list)
    kinds = [part["type"] for part in made]
    assert kinds.count("input_image") == results.MAX_IMAGES
    assert kinds.count("input_text") < 3_000
    assert "more texts were left out" in json.dumps(made)


def test_a_prompt_is_text_and_images() -> None:
    picture = {"uri": "x://y", "mimeType": "image/png", "blob": PNG}
    other = {"uri": "x://y", "mimeType": "text/plain", "blob": PNG}
    contents: list[object] = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "\n" + JPEG, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://y", "text": "two"}},
        {"type": "resource", "resource": picture},
        {"type": "resource", "resource": other},
        {"type": "resource", "resource": 7},
        "odd",
    ]
    found = prompt_input([*({"role": "user", "content": content} for content in contents), 5])
    assert found == [
        TextUserInput(text="one"),
        ImageUserInput(url="data:image/jpeg;base64," + JPEG),
        TextUserInput(text="two"),
        ImageUserInput(url="data:image/png;base64," + PNG),
        TextUserInput(text=json.dumps({"type": "resource", "resource": other}, separators=(",", ":"))),
        TextUserInput(text='{"type":"resource","resource":7}'),
        TextUserInput(text='"odd"'),
        TextUserInput(text="5"),
    ]
    said = prompt_input([{"role": "assistant", "content": _text("yes")}])
    assert said == [TextUserInput(text="Assistant: yes")]


def test_the_images_of_a_prompt_are_bounded() -> None:
    image = {"type": "image", "data": PNG + "A" * (results.MAX_IMAGE_CHARS * 2 // 3 & ~3), "mimeType": "image/png"}
    first, second = prompt_input([{"role": "user", "content": image}] * 2)
    assert isinstance(first, ImageUserInput)
    assert isinstance(second, TextUserInput)
    assert "too large" in second.text


@given(json_values)
def test_any_messages_become_input(value: Any) -> None:
    messages = [value, {"role": "user", "content": value}, {"content": {"type": "resource", "resource": value}}]
    assert len(prompt_input(messages)) == 3
