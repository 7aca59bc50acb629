"""README and docs: the Python in them runs, settings are settings, links lead somewhere.

The commands in them: `tests/system/test_doc_commands.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from scripts import make_reference

from doc_blocks import BLOCKS, DOCS, DOCUMENTS, REPOSITORY, Block, every
from kit.warm_python import run_python
from treadle.config import load_config
from treadle.execution import TokenEntry
from treadle.runners import Projects
from treadle.testing import MockModel

TOKEN: Final = "a-token-for-the-documents"
LANGUAGES: Final = {"console", "json", "py", "python", "sh", "text", "toml", "ts", "yaml"}
# Grows only with a reason that a reader accepts: settings of systemd, nginx and Prometheus, and a file for containers.
MOST_THAT_DO_NOT_RUN: Final = 18


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the documents call build-host."""
    token = tmp_path_factory.mktemp("docs") / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    command = [sys.executable, "-m", "treadle", "exec-server", "--token-file", str(token)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """What the documents call by the names of model servers."""
    with MockModel(on_empty=lambda request: "Hello.") as model:
        yield model.base_url


MODEL_SERVERS: Final = re.compile(r"http://gpu-box:\d+/v1|https://models\.example\.com/v1")


def run(arguments: list[str], cwd: Path) -> str:
    # A home of its own: nobody's threads, settings or keys.
    env = {name: value for name, value in os.environ.items() if name != "CODEX_HOME"}
    env |= {"HOME": str(cwd), "TREADLE_HOME": str(cwd / "home")}
    done = run_python(arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@every("python")
def test_documented_code_runs(block: Block, server_url: str, model_url: str, tmp_path: Path) -> None:
    code = block.text.replace("ws://build-host:8765", server_url).replace('token="…"', f"token={TOKEN!r}")
    code = MODEL_SERVERS.sub(model_url, code)
    script = tmp_path / "block.py"
    script.write_text(code)
    assert run([str(script)], tmp_path)


@pytest.mark.parametrize("example", sorted((REPOSITORY / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    assert run([str(example)], tmp_path)


@every("toml")
def test_documented_settings_are_settings(block: Block, tmp_path: Path) -> None:
    name = block.attributes.get("file", "config.toml")
    (tmp_path / name).write_text(block.text)
    if name == "config.toml":
        loaded = load_config(tmp_path, environ={})
        assert [str(warning.message) for warning in loaded.warnings] == []
    elif name == "projects.toml":
        assert Projects(tmp_path).list()
    elif name == "tokens.toml":
        assert msgspec.convert(tomllib.loads(block.text)["tokens"], dict[str, TokenEntry])
    else:
        assert name == "pyproject.toml"
        assert tomllib.loads(block.text)


@every("json")
def test_documented_json_is_json(block: Block) -> None:
    assert json.loads(block.text)


def test_every_block_says_what_it_is() -> None:
    """Only signatures in the reference are `py`: they are no statements."""
    unknown = [str(block) for block in BLOCKS if block.language not in LANGUAGES or block.rest]
    assert unknown == []
    assert {block.document.name for block in BLOCKS if block.language == "py"} == {
        "api.md",
        *(page.target.name for page in make_reference.PAGES),
    }
    assert [str(block) for block in BLOCKS if block.language == "ts" and block.runs] == []


def test_few_blocks_cannot_run_and_they_say_why() -> None:
    resting = [block for block in BLOCKS if not block.runs]
    assert [str(block) for block in resting if len(block.attributes["norun"].split()) < 3] == []
    assert 0 < len(resting) <= MOST_THAT_DO_NOT_RUN
    named = {name for block in resting for name in re.findall(r"tests/[\w/.]+", block.attributes["norun"])}
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    assert len(BLOCKS) > 100


# --- links -----------------------------------------------------------------------------------------------------------

PAGES: Final = (*DOCUMENTS, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "examples" / "README.md")
LINK: Final = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)|\b(?:src|href|srcset)=\"([^\"]+)\"")


def _prose(page: Path) -> str:
    """Without code, in which brackets are no links."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`(?!\])", "", text)


def _anchors(page: Path) -> set[str]:
    """Those of the headings, as forges make them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in (one or other for one, other in LINK.findall(_prose(page))):
        if re.match(r"https?://", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


# --- the site --------------------------------------------------------------------------------------------------------


def _leaves(nav: Any) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _leaves(value)


def test_every_page_can_be_found_in_the_navigation() -> None:
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]
    listed = list(_leaves(settings["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.name for page in DOCS} | {"contributing.md", "changelog.md"}


def test_every_page_is_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text()
    assert [page.name for page in DOCS if page.name != "index.md" and f"({page.name}" not in index] == []
