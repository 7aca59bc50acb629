"""The provider of CONTRIBUTING, added the way the recipe says: a line in `KNOWN`."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

import treadle
from treadle.config import FoundKey, choose_model
from treadle.llm import KNOWN, KnownProvider, key_variables, known_provider, laid_over

RECIPES = (Path(treadle.__file__).parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture(autouse=True)
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    section = RECIPES[RECIPES.index("### Add a provider") :]
    line = re.search(r"^   ```python\n(.*?)^   ```", section, re.DOTALL | re.MULTILINE)
    assert line is not None
    added = eval("{" + dedent(line[1]) + "}", {"KnownProvider": KnownProvider})
    assert isinstance(KNOWN, dict)
    monkeypatch.setitem(KNOWN, "parrot", added["parrot"])
    monkeypatch.setattr("treadle.llm.known_providers.known_provider", known_provider.__wrapped__)


def test_it_can_be_named() -> None:
    choice = choose_model(None, "parrot", FoundKey())
    assert (choice.model, choice.provider) == ("grey-1", "parrot")
    provider = known_provider.__wrapped__("parrot")
    assert provider is not None
    assert (provider.base_url, provider.wire_api) == ("https://api.parrot.example/v1", "chat")
    assert "PARROT_API_KEY" in key_variables()


def test_a_table_goes_over_it() -> None:
    table = laid_over("parrot", {"base_url": "http://localhost:1"})
    assert (table["base_url"], table["wire_api"]) == ("http://localhost:1", "chat")
