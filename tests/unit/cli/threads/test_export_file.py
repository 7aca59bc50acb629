"""Where an export goes: whole or not at all, and nothing is replaced without being asked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from treadle.cli import Problem, Redaction, export_file, redaction_for
from treadle.config import Login, StoredKeys, load_config


def test_a_new_file_is_written(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    with export_file(target, force=False) as file:
        file.write("text \ud800")
        assert not target.exists()
    assert target.read_text() == "text \\ud800"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["x.md"]


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    target.write_text("mine")
    with pytest.raises(Problem, match="is there already"), export_file(target, force=False) as file:
        file.write("text")
    assert target.read_text() == "mine"


def test_it_is_replaced_when_asked(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    target.write_text("mine")
    with export_file(target, force=True) as file:
        file.write("text")
    assert target.read_text() == "text"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_one_that_comes_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    with pytest.raises(Problem), export_file(target, force=False):
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["x.md"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    target.write_text("mine")
    with pytest.raises(RuntimeError), export_file(target, force=True):
        raise RuntimeError
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["x.md"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    with export_file(tmp_path / "link.md", force=True) as file:
        file.write("new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


def test_a_pipe_is_written_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with export_file(pipe, force=True) as file:
            file.write("text")
        assert os.read(reader, 100) == b"text"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_directories_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not" / "there.md"):
        with pytest.raises(Problem), export_file(path, force=True):
            pytest.fail("it was opened")


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_secrets_are_found_where_json_would_hide_them() -> None:
    redaction = Redaction(['pass"word\\one'])
    data = (
        rb'{"text": "it is pass\"word\\one", "deep": [{"x": "\nsk-abcdefgh12345678"}], "n": 1, "sk-abcdefgh12": null}'
    )
    assert redaction.json(data) == {
        "text": "it is [redacted]",
        "deep": [{"x": "\n[redacted]"}],
        "n": 1,
        "[redacted]": None,
    }


def test_every_key_that_this_machine_knows_is_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[model_providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\nenv_key = "MINE_FOR_ALL"\n'
        '[model_providers.other]\nbase_url = "http://127.0.0.1:9/v1"\nexperimental_bearer_token = "written-in-it"\n'
    )
    Login(tmp_path).set_api_key("the-login-of-openai")
    StoredKeys(tmp_path).set("mine", "kept-for-mine")
    environ = {"MINE_FOR_ALL": "of-the-variable", "LOOM_TOKEN": "of-the-variable-and-more", "PWD": "/home/ada/loom"}
    redaction = redaction_for(load_config(tmp_path).config, environ)
    for secret in ("the-login-of-openai", "kept-for-mine", "written-in-it", *environ.values()):
        shown = "a [redacted] b" if secret != environ["PWD"] else f"a {secret} b"
        assert redaction.clean(f"a {secret} b") == shown
    assert redaction.clean("set MINE_FOR_ALL") == "set MINE_FOR_ALL"
