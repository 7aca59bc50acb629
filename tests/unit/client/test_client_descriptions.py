"""Everything that can be passed to a public call is described where `help()` shows it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

import pytest

import treadle
from treadle import client
from treadle.client import read_docstring
from treadle.execution import ExecParams, Process
from treadle.server import AppServer
from treadle.testing import AppServerHarness, EngineHome, EngineModel, HarnessClient, MockModel

CLASSES: Final[tuple[Any, ...]] = (
    client.Codex,
    client.AsyncCodex,
    client.Thread,
    client.AsyncThread,
    client.TurnHandle,
    client.AsyncTurnHandle,
    client.ChatgptLoginHandle,
    client.AsyncChatgptLoginHandle,
    client.DeviceCodeLoginHandle,
    client.AsyncDeviceCodeLoginHandle,
    treadle.Environment,
    Process,
    AppServer,
    MockModel,
    EngineModel,
    EngineHome,
    AppServerHarness,
    HarnessClient,
)
# Described as a whole: the fields, or what they are made with.
MADE: Final[tuple[Any, ...]] = (
    client.Codex,
    client.AsyncCodex,
    client.CodexConfig,
    client.TurnResult,
    client.Tool,
    client.TextInput,
    client.ImageInput,
    client.LocalImageInput,
    client.SkillInput,
    client.MentionInput,
    client.ExternalMessage,
    client.AppServerClient,
    client.AsyncAppServerClient,
    treadle.Environment,
    ExecParams,
    Process,
    AppServer,
    MockModel,
    EngineModel,
    EngineHome,
    AppServerHarness,
    HarnessClient,
)
FUNCTIONS: Final = (client.retry_on_overload, client.async_retry_on_overload, client.is_retryable_error)


def _methods() -> Iterator[Any]:
    for cls in CLASSES:
        for name, member in inspect.getmembers(cls, lambda found: inspect.isfunction(found) or inspect.ismethod(found)):
            if not name.startswith("_"):
                yield pytest.param(member, id=f"{cls.__name__}.{name}")


def _differences(parameters: list[str], docstring: str) -> list[str]:
    """What is not described, and what is described though it is not there."""
    described = read_docstring(docstring)[1]
    wanted = [name for name in parameters if name != "self"]
    return sorted(set(wanted) ^ described.keys()) or [name for name in wanted if not described[name]]


@pytest.mark.parametrize("function", [*_methods(), *FUNCTIONS])
def test_every_parameter_of_a_call_is_described(function: Any) -> None:
    assert _differences(list(inspect.signature(function).parameters), inspect.getdoc(function) or "") == []


@pytest.mark.parametrize("cls", MADE, ids=lambda cls: cls.__name__)
def test_all_that_something_is_made_with_is_described(cls: Any) -> None:
    assert _differences(list(inspect.signature(cls).parameters), inspect.cleandoc(cls.__doc__ or "")) == []


def test_parameters_are_described_in_their_order() -> None:
    for cls in CLASSES:
        for name, member in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                order = [each for each in inspect.signature(member).parameters if each != "self"]
                assert list(read_docstring(inspect.getdoc(member) or "")[1]) == order, f"{cls.__name__}.{name}"


def test_help_shows_them() -> None:
    import pydoc

    shown = pydoc.plain(pydoc.render_doc(client.Codex.thread_start))
    assert "developer_instructions: Further instructions of the model" in shown
    assert "request_timeout: Seconds" in pydoc.plain(pydoc.render_doc(client.CodexConfig))


def test_a_call_without_descriptions_would_be_found() -> None:
    assert _differences(["self", "told", "untold"], "Does it.\n\nArgs:\n    told: This.\n    gone: That.\n") == [
        "gone",
        "untold",
    ]
