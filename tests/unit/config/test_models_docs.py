"""`docs/models.md` says what is so: its recipes load, and its table has every provider."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.config import load_config
from treadle.llm import KNOWN, OFFLINE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text()
RECIPES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_what_it_says(tmp_path: Path, recipe: str) -> None:
    (tmp_path / "config.toml").write_text(recipe)
    loaded = load_config(tmp_path, environ={})
    assert loaded.warnings == ()
    named = re.search(r'^model_provider = "(.*)"', recipe, re.MULTILINE)
    assert named is None or loaded.config.model_provider == named[1]
    for profile in re.findall(r"^\[profiles\.(.*)\]", recipe, re.MULTILINE):
        assert load_config(tmp_path, overrides=[f"profile={profile}"], environ={}).config.model_provider == "ollama"


def test_there_is_one_for_each_provider() -> None:
    named = set(re.findall(r'^model_provider = "(.*)"', "\n".join(RECIPES), re.MULTILINE))
    assert named == {*KNOWN, OFFLINE, "gateway"}


def test_every_provider_is_in_the_table() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for name, known in KNOWN.items():
        for fact in (known.table.get("base_url"), known.table.get("wire_api"), known.table.get("env_key"), known.model):
            assert fact is None or f"`{fact}`" in rows[name], (name, fact)
