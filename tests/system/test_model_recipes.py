"""Every recipe of `docs/models.md`, as its reader writes it: `treadle exec` asks the right server in the right way.

Only where the server is differs: it is a mock on this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kit.warm_python import run_python
from treadle.llm import KNOWN, OFFLINE
from treadle.testing import MockModel
from wire_rules import check_request

DEADLINE: Final = 60
KEY: Final = "sk-of-the-reader"
PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
TEXTS: Final = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """`path` is where the server is asked, `variable` holds the key, and `header` brings it."""

    provider: str
    path: str
    variable: str | None = None
    header: str = "authorization"
    value: str = f"Bearer {KEY}"
    more: tuple[str, str] | None = None
    number: int = 0
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As it is on the page, but for the address."""
        found = [text for text in TEXTS if text.startswith(f'model_provider = "{self.provider}"\n')]
        return re.sub(r"^base_url = .*\n", "", found[self.number], flags=re.MULTILINE)


RECIPES: Final = {
    "openai": Recipe("openai", "/v1/responses", "OPENAI_API_KEY"),
    "anthropic": Recipe(
        "anthropic", "/v1/messages", "ANTHROPIC_API_KEY", "x-api-key", KEY, ("anthropic-version", "2023-06-01")
    ),
    "openrouter": Recipe("openrouter", "/v1/chat/completions", "OPENROUTER_API_KEY"),
    "azure": Recipe("azure", "/v1/responses", "AZURE_OPENAI_API_KEY"),
    "azure, older": Recipe(
        "azure", "/v1/responses?api-version=2025-04-01-preview", "AZURE_OPENAI_API_KEY", number=1
    ),
    "ollama": Recipe("ollama", "/v1/chat/completions"),
    "lmstudio": Recipe("lmstudio", "/v1/chat/completions"),
    "vllm": Recipe("vllm", "/v1/chat/completions", "VLLM_API_KEY"),
    "another": Recipe("gateway", "/v1/chat/completions", "GATEWAY_KEY", more=("x-team", "tools")),
    "profile": Recipe("openai", "/v1/chat/completions", number=1, words=("--profile", "local")),
}  # fmt: skip


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel() as model:
        yield model


def run(folder: Path, config: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir(exist_ok=True)
    workspace.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config)
    prefixes = ("TREADLE", "OPENAI", "ANTHROPIC", "CODEX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    environ = {**kept, "TREADLE_HOME": str(home), **env}
    return run_python(["-m", "treadle", "exec", *words, "hi"], cwd=workspace, env=environ)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works(name: str, model: MockModel, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    used = "ollama" if recipe.words else recipe.provider
    env = {} if recipe.variable is None else {recipe.variable: KEY}
    words = recipe.words
    if used == "openai":
        env["OPENAI_BASE_URL"] = model.base_url
    else:
        words = (*words, "-c", f"model_providers.{used}.base_url={model.base_url}")
    model.enqueue_assistant_message("An answer.")
    done = run(tmp_path, recipe.text, *words, **env)
    assert (done.returncode, done.stdout) == (0, "An answer.\n"), done.stderr
    named = re.findall(r'^model = "(.*)"', recipe.text, re.MULTILINE)[-1]
    assert done.stderr.startswith(f"model    {named} ({used}, because ")
    request = model.single_request()
    check_request(request)
    assert (request.path, request.json["model"]) == (recipe.path, named)
    assert request.header(recipe.header) == (None if recipe.variable is None else recipe.value)
    if recipe.more is not None:
        assert request.header(recipe.more[0]) == recipe.more[1]
    assert KEY not in done.stdout + done.stderr + request.body.decode()


def test_the_recipe_without_a_server(model: MockModel, tmp_path: Path) -> None:
    """Also where a key is set: it was named."""
    done = run(tmp_path, Recipe(OFFLINE, "").text, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=model.base_url)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("model    offline (offline, because ")
    assert done.stdout.startswith("I am Treadle's offline model")
    assert model.requests() == []


def test_no_provider_is_left_out() -> None:
    assert {recipe.provider for recipe in RECIPES.values()} == {*KNOWN, "gateway"}
    assert len(TEXTS) - sum("model_provider" not in text for text in TEXTS) == len(RECIPES) + 1


def test_a_thread_goes_on_at_another_provider(model: MockModel, tmp_path: Path) -> None:
    """With what the page says to type: the new provider's own model is asked, and knows what was said."""
    for text in ("The first.", "The second."):
        model.enqueue_assistant_message(text)
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": KEY}
    config = f'[model_providers.anthropic]\nbase_url = "{model.base_url}"\n'
    assert run(tmp_path, config, **env).returncode == 0
    done = run(tmp_path, config, "-c", "model_provider=anthropic", "resume", "--last", **env)
    assert (done.returncode, done.stdout) == (0, "The second.\n"), done.stderr
    first, second = model.requests()
    assert (first.path, first.json["model"]) == ("/v1/responses", KNOWN["openai"].model)
    assert (second.path, second.json["model"]) == ("/v1/messages", KNOWN["anthropic"].model)
    check_request(second)
    assert second.input_texts("assistant") == ["The first."]
