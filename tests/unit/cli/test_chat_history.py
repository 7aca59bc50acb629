"""What was typed before: newest first, for its owner alone, bounded, and never a reason to fail."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from treadle.cli import MAX_ENTRIES, MAX_ENTRY_BYTES, MessageHistory
from treadle.cli.chat import chat_input


def _file(home: Path) -> Path:
    return home / chat_input.FILE


def test_messages_come_back_newest_first_with_their_lines(tmp_path: Path) -> None:
    history = MessageHistory(tmp_path)
    history.store_string("one")
    history.store_string("two\nlines „ß“")
    assert list(MessageHistory(tmp_path).load_history_strings()) == ["two\nlines „ß“", "one"]


def test_the_file_is_for_its_owner_alone_also_when_it_was_not(tmp_path: Path) -> None:
    history = MessageHistory(tmp_path / "home")
    history.store_string("one")
    assert stat.S_IMODE(_file(tmp_path / "home").stat().st_mode) == 0o600
    _file(tmp_path / "home").chmod(0o644)
    history.store_string("two")
    assert stat.S_IMODE(_file(tmp_path / "home").stat().st_mode) == 0o600


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    lines = [json.dumps({"ts": 1, "text": str(number)}) for number in range(MAX_ENTRIES + 50)]
    _file(tmp_path).write_text("\n".join(lines) + "\n")
    found = list(MessageHistory(tmp_path).load_history_strings())
    assert len(found) == MAX_ENTRIES
    assert found[0] == str(MAX_ENTRIES + 49)
    assert len(_file(tmp_path).read_text().splitlines()) == MAX_ENTRIES
    assert stat.S_IMODE(_file(tmp_path).stat().st_mode) == 0o600


def test_a_file_that_is_too_large_is_read_from_its_end(tmp_path: Path) -> None:
    entry = json.dumps({"ts": 1, "text": "x" * 10_000})
    _file(tmp_path).write_text("\n".join([entry] * 200 + [json.dumps({"ts": 2, "text": "last"})]) + "\n")
    found = list(MessageHistory(tmp_path).load_history_strings())
    assert found[0] == "last"
    assert len(found) < 110
    assert _file(tmp_path).stat().st_size <= chat_input.MAX_BYTES


def test_a_long_text_is_not_kept(tmp_path: Path) -> None:
    MessageHistory(tmp_path).store_string("x" * MAX_ENTRY_BYTES)
    assert not _file(tmp_path).exists()


def test_lines_that_are_none_are_left_out(tmp_path: Path) -> None:
    lines = ["", "no JSON", "[]", '{"text": 1, "ts": 1}', '{"ts": 1}', '{"ts": 1, "text": "good"}', "[" * 10_000]
    _file(tmp_path).write_text("\n".join(lines))
    assert list(MessageHistory(tmp_path).load_history_strings()) == ["good"]


def test_a_home_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    history = MessageHistory(tmp_path / "home")
    history.store_string("one")
    assert list(history.load_history_strings()) == []
