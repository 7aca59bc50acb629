"""Reading and editing `config.toml` as a file, and what `config/read` answers."""

from __future__ import annotations

import fcntl
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from treadle.config import (
    ConfigError,
    ConfigWriteError,
    config_view,
    home_files,
    load_config,
    read_document,
    write_values,
)
from treadle.protocol.app import ConfigEdit, SessionFlagsConfigLayerSource, UserConfigLayerSource, encode


def edit(key: str, value: Any, strategy: Literal["replace", "upsert"] = "replace") -> ConfigEdit:
    return ConfigEdit(key_path=key, merge_strategy=strategy, value=value)


def text(home: Path) -> str:
    return (home / "config.toml").read_text()


def test_a_missing_file_is_an_empty_document_with_a_version(tmp_path: Path) -> None:
    document = read_document(tmp_path)
    assert document.values == {}
    assert document.version.startswith("sha256:")
    assert read_document(tmp_path).version == document.version


def test_the_first_write_makes_home_and_file_private(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    written = write_values(home, [edit("model", "zz"), edit("no.such.key", 1)])
    assert text(home) == 'model = "zz"\n\n[no.such]\nkey = 1\n'
    assert written.path == str(home / "config.toml")
    assert written.version == read_document(home).version
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_comments_order_and_mode_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "a" # why\n\n[tui]\n# colours\ntheme = "x"\n')
    file.chmod(0o644)
    write_values(tmp_path, [edit("model", "b"), edit("tui.theme", None), edit("tui.new", [1])])
    assert text(tmp_path) == '# mine\nmodel = "b" # why\n\n[tui]\nnew = [1]\n# colours\n'
    assert file.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "codex.toml"
    real.write_text("")
    (tmp_path / "config.toml").symlink_to("dotfiles/codex.toml")
    write_values(tmp_path, [edit("model", "b")])
    assert (tmp_path / "config.toml").is_symlink()
    assert real.read_text() == 'model = "b"\n'


def test_a_byte_order_mark_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xef\xbb\xbf# x\r\na = 1\r\n")
    written = write_values(tmp_path, [edit("b", 2)])
    assert (tmp_path / "config.toml").read_bytes() == b"\xef\xbb\xbf# x\r\na = 1\r\nb = 2\r\n"
    assert written.version == read_document(tmp_path).version


def test_upsert_merges_tables_and_replace_does_not(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[tools]\na = 1\nb = 2\n")
    write_values(tmp_path, [edit("tools", {"b": 3, "c": {"d": 4}}, "upsert")])
    assert tomllib.loads(text(tmp_path)) == {"tools": {"a": 1, "b": 3, "c": {"d": 4}}}
    write_values(tmp_path, [edit("tools", {"c": {"e": None}})])
    assert tomllib.loads(text(tmp_path)) == {"tools": {"c": {}}}


def test_a_stale_version_is_a_conflict(tmp_path: Path) -> None:
    before = read_document(tmp_path).version
    first = write_values(tmp_path, [edit("model", "a")], before)
    with pytest.raises(ConfigWriteError, match="read it again") as caught:
        write_values(tmp_path, [edit("model", "b")], before)
    assert caught.value.code == "configVersionConflict"
    assert text(tmp_path) == 'model = "a"\n'
    write_values(tmp_path, [edit("model", "b")], first.version)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("approval_policy", "maybe", "allowed is one of"),
        ("model", 3, "found 3"),
        ("model.x", 3, "is no table"),
        ("a..b", 1, "no dotted key"),
        ("x", [None], "null"),
        ("model_provider", "nobody", "there is no provider"),
    ],
)
def test_a_bad_edit_changes_nothing(tmp_path: Path, key: str, value: Any, problem: str) -> None:
    (tmp_path / "config.toml").write_text('model = "a"\n')
    with pytest.raises(ConfigWriteError, match=problem) as caught:
        write_values(tmp_path, [edit("tui.x", 1), edit(key, value)])
    assert (caught.value.code, caught.value.key) == ("configValidationError", key)
    assert text(tmp_path) == 'model = "a"\n'


def test_an_edit_may_mend_a_file_step_by_step(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('approval_policy = "maybe"\n')
    write_values(tmp_path, [edit("sandbox_mode", "read-only")])
    write_values(tmp_path, [edit("approval_policy", "never")])
    assert load_config(tmp_path, environ={}).config.approval_policy == "never"


def test_a_broken_file_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a = [")
    with pytest.raises(ConfigError) as caught:
        write_values(tmp_path, [edit("model", "b")])
    assert caught.value.line == 1
    assert text(tmp_path) == "a = ["


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_values(tmp_path, [edit(f"tui.k{number}", number)]), range(24)))
    assert tomllib.loads(text(tmp_path)) == {"tui": {f"k{number}": number for number in range(24)}}


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_values(tmp_path / "file" / "home", [edit("model", "b")])


def test_the_view_names_the_origin_of_each_value(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "a"\n[tui]\n"x.y" = 1\nd = 1979-05-27\n')
    config = load_config(tmp_path, overrides=["model=b"], environ={"TREADLE_MODEL_PROVIDER": "offline"}).config
    view = config_view(config, document := read_document(tmp_path), include_layers=True)
    assert view.config["model"] == "b"
    assert view.config["sandbox_mode"] == "read-only"
    assert view.config["developer_instructions"] is None
    assert set(view.origins) == {"model", "model_provider", 'tui."x.y"', "tui.d"}
    user = view.origins["tui.d"]
    assert (user.name, user.version) == (UserConfigLayerSource(file=document.path), document.version)
    assert view.origins["model"].name == SessionFlagsConfigLayerSource()
    assert isinstance(view.layers, tuple)
    assert [layer.config.get("model") for layer in view.layers] == ["b", "a"]
    assert b'"d":"1979-05-27"' in encode(view)
    assert view.config["model_provider_reason"] == "the environment variable TREADLE_MODEL_PROVIDER names it"
    assert config_view(config, document).layers is None


def test_a_lock_that_nobody_gives_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_files, "LOCK_S", 0.05)
    holder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process has held the lock"):
            write_values(tmp_path, [edit("model", "x")])
    finally:
        os.close(holder)
    assert not (tmp_path / "config.toml").exists()
    write_values(tmp_path, [edit("model", "x")])
    assert text(tmp_path) == 'model = "x"\n'
