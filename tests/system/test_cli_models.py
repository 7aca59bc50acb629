"""`treadle models` as a program, and `model/list` of the app-server, on a provider that lists its models."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kit.warm_python import run_python
from treadle import Codex

DEADLINE = 60
LISTED = {"data": [{"id": "gpt-5.5"}, {"id": "mine", "context_length": 4096}, {"id": "priced"}]}
CONFIG = """model_provider = "x"
model = "mine"
[model_providers.x]
base_url = "{url}"
env_key = "X_KEY"
[models.priced]
price_input = 1
price_output = 2.5
[profiles.p]
model = "priced"
"""


@contextmanager
def listing(code: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server that has a list of models, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps(LISTED if code == 200 else {"error": {"message": "not here"}}).encode()
            self.send_response(code)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE)


def run(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_python(
        ["-m", "treadle", "models", *words], cwd=home, env={**os.environ, "TREADLE_HOME": str(home), **env}
    )


def test_the_list_with_what_is_known(tmp_path: Path) -> None:
    with listing() as (url, asked):
        (tmp_path / "config.toml").write_text(CONFIG.format(url=url))
        done = run(tmp_path, X_KEY="k-e-y-of-x")
        assert (done.returncode, done.stderr) == (0, "x, because config.toml names it\n")
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        assert rows == [
            ["gpt-5.5", "1,050,000", "128,000", "$5.00", "$0.50", "$30.00"],
            ["mine", "*", "4,096"],
            ["priced", "$1.00", "$2.50"],
        ]
        listed = json.loads(run(tmp_path, "--json", "-p", "p", X_KEY="k").stdout)
        assert [(model["id"], model["default"]) for model in listed] == [
            ("gpt-5.5", False),
            ("mine", False),
            ("priced", True),
        ]
        assert asked == ["/v1/models"] * 2


@pytest.mark.parametrize(
    ("words", "env", "code", "says"),
    [
        ([], {}, 1, "x does not list its models\n  why: provider `x` needs the environment variable `X_KEY`"),
        ([], {"X_KEY": "k"}, 1, "x does not list its models\n  why: unexpected status 404 Not Found: not here"),
        (["--provider", "nope"], {}, 1, "\n  why: -c: model_provider: there is no provider `nope`"),
        (["-p", "nope"], {}, 2, "\n  why: -c: profile: there is no table [profiles.nope]; add the table, or ch"),
        (["-c", "model_provider=3"], {}, 2, "\n  why: -c: model_provider: found 3, allowed is a text"),
    ],
)
def test_what_cannot_be_listed_is_told(
    tmp_path: Path, words: list[str], env: dict[str, str], code: int, says: str
) -> None:
    with listing(404) as (url, _):
        (tmp_path / "config.toml").write_text(CONFIG.format(url=url))
        done = run(tmp_path, *words, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert [line[:7] for line in done.stderr.splitlines()] == ["treadle", "  why: ", "  try: "]


def test_offline_lists_itself(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("offline, because neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set")
    assert done.stdout.splitlines()[1].split()[:2] == ["offline", "*"]


def test_a_client_gets_the_same_list_and_without_one_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    monkeypatch.setenv("X_KEY", "k")

    def ids(code: int) -> tuple[list[Any], list[str]]:
        with listing(code) as (url, asked):
            (tmp_path / "config.toml").write_text(CONFIG.format(url=url))
            with Codex() as codex:
                first = codex.models().data
                assert codex.models().data == first
            return [(model.id, model.is_default) for model in first], asked

    listed, asked = ids(200)
    assert listed == [("gpt-5.5", False), ("mine", True), ("priced", False)]
    assert asked == ["/v1/models"]  # it is kept
    listed, asked = ids(404)
    assert listed[0] == ("mine", True)
    assert ("gpt-6.1-sol", False) in listed
    assert asked == ["/v1/models"]
