"""`docs/configuration.md` has every setting that is read, and nothing that is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from scripts import make_configuration

from treadle.config import ELSEWHERE, ConfigError, check_document
from treadle.config import VARIABLES as OF_SETTINGS
from treadle.home import VARIABLES as OF_HOME
from treadle.llm import ProviderConfigError, key_variables, read_provider

REPOSITORY: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (REPOSITORY / "docs" / "configuration.md").read_text()
SOURCES: Final = {path: path.read_text() for path in sorted((REPOSITORY / "src" / "treadle").rglob("*.py"))}
# What every program of this kind looks at, and what the login of another program is found by.
OF_THE_SYSTEM: Final = frozenset(
    {"DISPLAY", "HOME", "PATH", "SHELL", "SUDO_UID", "TERM", "TERM_PROGRAM", "TMUX", "WAYLAND_DISPLAY"}
)
OF_ENGINES: Final = (
    *("runners/codex.py", "runners/claude.py", "runners/opencode.py", "runners/pi.py"),
    "testing/engine_home.py",
)


def _told() -> Iterator[tuple[str, ...]]:
    """The path of each documented key; NAME is a name of ours."""
    for row in make_configuration.setting_rows():
        yield tuple("view_image" if part == "NAME" else part for part in row.key.split("."))
    for row in make_configuration.provider_rows():
        yield ("model_providers", "mine", row.key)
    for row in make_configuration.model_rows():
        yield ("models", "mine", row.key)
    for row in make_configuration.mcp_server_rows():
        yield ("mcp_servers", "mine", *row.key.split("."))


@pytest.mark.parametrize("path", list(_told()), ids=".".join)
def test_a_key_on_the_page_is_read(path: tuple[str, ...]) -> None:
    """No key allows a date: who reads it says so, and who does not read it says nothing."""
    document: dict[str, Any] = {"model_provider": "mine", "model": "m"}
    document["model_providers"] = {"mine": {"base_url": "http://localhost/v1"}}
    table = document
    for part in path[:-1]:
        table = table.setdefault(part, {})
    table[path[-1]] = date(2026, 1, 1)
    error = check_document(document)
    assert isinstance(error, ConfigError)
    assert path[-1] in str(error)


BOUNDED: Final = [
    (row.key, int(low), int(high))
    for row in make_configuration.provider_rows()
    for low, high in re.findall(r"^a whole number from (\d+) to (\d+)$", row.allowed)
]


@pytest.mark.parametrize(("key", "low", "high"), BOUNDED)
def test_the_bounds_on_the_page_are_those_that_hold(key: str, low: int, high: int) -> None:
    taken = [_takes(key, value) for value in (low - 1, low, high, high + 1)]
    assert taken == [False, True, True, False]


def test_some_settings_have_bounds() -> None:
    assert len(BOUNDED) >= 6


def _takes(key: str, value: int) -> bool:
    try:
        read_provider("x", {"base_url": "http://x/v1", key: value})
    except ProviderConfigError:
        return False
    return True


def test_no_table_that_is_read_is_missing() -> None:
    read = {key for source in SOURCES.values() for key in re.findall(r"\bdocument\.get\(\s*\"(\w+)\"", source)}
    assert {"model", "mcp_servers"} <= read
    for name in read | ELSEWHERE:
        assert re.search(rf"`\[?{name}\b", PAGE), name


def _variables(path: Path, source: str) -> Iterator[str]:
    """Names that stand alone in a text, or are looked up in an environment."""
    if any(part in str(path) for part in OF_ENGINES) or not re.search(r"environ|TREADLE_|CODEX_", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(TREADLE|CODEX)_[A-Z_]+", node.value):
                yield node.value
        elif (
            isinstance(node, ast.Call)
            and re.fullmatch(r"(os\.|\w+\.)?_?environ\.get|os\.getenv", ast.unparse(node.func))
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def test_no_environment_variable_that_is_read_is_missing() -> None:
    read = {name for path, source in SOURCES.items() for name in _variables(path, source)}
    read |= {*OF_SETTINGS, *OF_HOME, *key_variables()}
    assert {"TREADLE_HOME", "TREADLE_SANDBOX", "NO_COLOR"} <= read
    told = set(make_configuration.VARIABLES)
    assert read - told == make_configuration.INTERNAL_VARIABLES | OF_THE_SYSTEM
    everything = "".join(SOURCES.values())
    assert [name for name in told if name not in everything] == []
