"""Errors of other layers, for people: each has what, why and what to type."""

from __future__ import annotations

import errno
from typing import get_args

import pytest

from treadle.agent import advice, failure_of
from treadle.cli import OutputFailed, Problem, problem_of
from treadle.config import ConfigError, ConfigWriteError, ModelUnusable
from treadle.errors import ChannelClosed, RpcError, TreadleError
from treadle.llm import ErrorKind, ModelError, ProviderConfig, known_provider
from treadle.protocol.app import (
    CodexErrorInfo,
    HttpConnectionFailedCodexErrorInfo,
    HttpFailure,
    ResponseTooManyFailedAttemptsCodexErrorInfo,
    TurnError,
)
from treadle.runners import UnknownEngine
from treadle.store import StoreError, StoreFailure
from treadle.transport import AddressError, ListenError


@pytest.mark.parametrize(
    ("error", "code", "do"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "make room"),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 1, "TREADLE_HOME=DIR"),
        (OSError(errno.EACCES, "Permission denied", "/x"), 1, "ls -l"),
        (OSError("something else"), 1, "treadle doctor"),
        (StoreError("no space left", "full"), 2, "make room"),
        (StoreError("held", "busy"), 2, "names the process"),
        (ListenError("taken"), 1, "a free port"),
        (AddressError("nonsense"), 1, "--listen"),
        (ChannelClosed("no pipe"), 1, "pipes"),
        (UnknownEngine("nix", "there is none"), 2, "treadle engines"),
        (RpcError(-32600, "no"), 2, "treadle doctor"),
        (ConfigError("wrong", path="/c", key="k", line=3, column=1), 2, "correct line 3 of /c"),
        (ConfigError("unreadable", path="/c"), 2, "ls -l /c"),
        (ConfigError("wrong", key="k", source="the environment variable X"), 2, "correct the environment variable X"),
        (ConfigError("there is no home"), 2, "export TREADLE_HOME"),
        (ConfigWriteError("no", "configValidationError"), 2, "treadle config show"),
        (ModelUnusable("none", key="model"), 1, "-m NAME"),
        (ModelUnusable("none", key="model_provider"), 1, "-c model_provider=NAME"),
        (ModelError("no", kind="unauthorized"), 1, "treadle login"),
        (ZeroDivisionError("odd"), 1, "--debug"),
    ],
)
def test_each_has_what_why_and_what_to_type(error: Exception, code: int, do: str) -> None:
    problem = problem_of(error)
    assert problem.what
    assert problem.why
    assert do in (problem.do or "")
    assert problem.code == code
    assert str(problem).splitlines() == [problem.what, f"  why: {problem.why}", f"  try: {problem.do}"]


def test_what_is_a_problem_already_stays_it() -> None:
    problem = Problem("what", why="one\ntwo", do="do")
    assert problem_of(problem) is problem
    assert str(problem) == "what\n  why: one\n       two\n  try: do"
    assert problem_of(TreadleError("odd")).why == "odd"
    assert problem_of(OutputFailed("closed")).what == "closed"


def test_every_failure_of_a_store_has_a_way_out() -> None:
    assert all(problem_of(StoreError("x", kind)).do for kind in get_args(StoreFailure))


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_every_failure_of_a_provider_has_a_way_out(kind: ErrorKind) -> None:
    error = ModelError("no", kind=kind)
    for provider in (None, known_provider("anthropic"), known_provider("ollama")):
        assert advice(error.kind, provider)


def test_what_to_type_fits_the_provider() -> None:
    def said(kind: ErrorKind, provider: ProviderConfig | None) -> str:
        return advice(kind, provider)

    assert said("unauthorized", known_provider("openai")) == "treadle login openai, or set OPENAI_API_KEY"
    assert said("unauthorized", ProviderConfig(id="mine", base_url="http://h/v1")) == "treadle login mine"
    assert "ollama serve" in said("absent", known_provider("ollama"))
    assert "curl -I https://api.anthropic.com/v1" in said("absent", known_provider("anthropic"))
    elsewhere = ProviderConfig(id="mine", base_url="http://user:s3cret@127.0.0.1:9/v1?key=s3cret")
    assert said("absent", elsewhere).startswith("start the server at http://127.0.0.1:9/v1")
    assert "s3cret" not in said("absent", elsewhere)
    # Such as a model of another provider in an offline thread: there is nobody to ask.
    assert said("other", None) == "treadle login status shows which providers can be used"


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("unauthorized", "treadle login anthropic, or set ANTHROPIC_API_KEY"),
        (HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure(http_status_code=401)), "login"),
        (HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure()), "check the network"),
        (
            HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure(http_status_code=404)),
            "treadle models",
        ),
        (HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure(http_status_code=502)), "in a minute"),
        (ResponseTooManyFailedAttemptsCodexErrorInfo(response_too_many_failed_attempts=HttpFailure()), "in a minute"),
        ("contextWindowExceeded", "larger context"),
        ("sandboxError", None),
        (None, None),
    ],
)
def test_a_turn_that_failed(info: CodexErrorInfo | None, said: str | None) -> None:
    found = failure_of(TurnError(message="no", codex_error_info=info), known_provider("anthropic"))
    assert found is None if said is None else found is not None and said in found.advice
