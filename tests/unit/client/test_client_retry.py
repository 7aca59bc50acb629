"""Trying again when the server is busy. Nobody really waits here."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.client import (
    AppServerClient,
    AsyncAppServerClient,
    InvalidParamsError,
    JsonRpcError,
    RetryLimitExceededError,
    ServerBusyError,
    TransportClosedError,
    async_retry_on_overload,
    is_retryable_error,
    retry_on_overload,
    rpc_error,
)

pytestmark = pytest.mark.anyio

BUSY = ServerBusyError(-32001, "later")


class Operation:
    """Fails with these errors, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.calls = 0
        self._errors = list(errors)

    def plain(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    async def awaited(self) -> str:
        return self.plain()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, each time."""
    found: list[float] = []

    async def sleep(delay: float) -> None:
        found.append(delay)

    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


@pytest.fixture(params=["sync", "async"])
def retry(request: pytest.FixtureRequest) -> Callable[..., Any]:
    async def run(operation: Operation, **options: Any) -> str:
        if request.param == "sync":
            return retry_on_overload(operation.plain, **options)
        return await async_retry_on_overload(operation.awaited, **options)

    return run


async def test_success_waits_for_nothing(retry: Callable[..., Any], waits: list[float]) -> None:
    operation = Operation()
    assert await retry(operation) == "done"
    assert (operation.calls, waits) == (1, [])


async def test_each_wait_is_twice_the_last_up_to_a_limit(retry: Callable[..., Any], waits: list[float]) -> None:
    operation = Operation(*[BUSY] * 5)
    options = {"max_attempts": 6, "initial_delay_s": 0.5, "max_delay_s": 3.0, "jitter_ratio": 0.0}
    assert await retry(operation, **options) == "done"
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


async def test_it_waits_a_little_more_or_less(retry: Callable[..., Any], waits: list[float]) -> None:
    await retry(Operation(*[BUSY] * 40), max_attempts=41, initial_delay_s=1.0, max_delay_s=1.0)
    assert all(0.8 <= wait <= 1.2 for wait in waits)
    assert len(set(waits)) > 1


async def test_the_last_error_is_raised(retry: Callable[..., Any], waits: list[float]) -> None:
    operation = Operation(*[BUSY] * 5)
    with pytest.raises(ServerBusyError, match="later"):
        await retry(operation)
    assert (operation.calls, len(waits)) == (3, 2)


@pytest.mark.parametrize("error", [InvalidParamsError(-32602, "no"), TransportClosedError("gone"), ValueError("own")])
async def test_other_errors_are_not_tried_again(
    error: Exception, retry: Callable[..., Any], waits: list[float]
) -> None:
    operation = Operation(error)
    with pytest.raises(type(error)):
        await retry(operation)
    assert (operation.calls, waits) == (1, [])


async def test_no_attempt_is_no_number(retry: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await retry(Operation(), max_attempts=0)


@pytest.mark.parametrize("client", [AppServerClient(), AsyncAppServerClient()], ids=["sync", "async"])
async def test_a_request_that_is_tried_again(client: Any, waits: list[float]) -> None:
    operation, asked = Operation(BUSY), []

    def request(method: str, params: Any, *, response_model: Any) -> Any:
        asked.append((method, params, response_model))
        return operation.awaited() if isinstance(client, AsyncAppServerClient) else operation.plain()

    client.request = request
    answer = client.request_with_retry_on_overload("model/list", {}, response_model=dict)
    assert (await answer if inspect.isawaitable(answer) else answer) == "done"
    assert asked == [("model/list", {}, dict)] * 2
    assert len(waits) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    attempts=st.integers(1, 80),
    first=st.floats(0, 10, allow_subnormal=False),
    most=st.floats(0, 10, allow_subnormal=False),
    jitter=st.floats(0, 1, allow_subnormal=False),
)
def test_no_wait_is_out_of_bounds(attempts: int, first: float, most: float, jitter: float, waits: list[float]) -> None:
    waits.clear()
    retry_on_overload(
        Operation(*[BUSY] * (attempts - 1)).plain,
        max_attempts=attempts,
        initial_delay_s=first,
        max_delay_s=most,
        jitter_ratio=jitter,
    )
    assert len(waits) == attempts - 1
    rounded = 1 + 1e-9  # a sum of floats is not the product that means the same
    assert all(0 <= wait <= most * (1 + jitter) * rounded for wait in waits)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (rpc_error(-32001, "busy"), True),
        (rpc_error(-32050, "x", {"codexErrorInfo": "server_overloaded"}), True),
        (rpc_error(-32050, "x", {"deep": [{"codex_error_info": "Server_Overloaded"}]}), True),
        (rpc_error(7, "x", "server_overloaded"), True),
        (rpc_error(-32050, "x", {"codexErrorInfo": "other"}), False),
        (rpc_error(-32600, "server_overloaded"), False),
        (ValueError("server_overloaded"), False),
    ],
)
def test_which_errors_are_worth_another_try(error: Exception, retryable: bool) -> None:
    assert is_retryable_error(error) is retryable


def test_a_server_that_gave_up_by_itself() -> None:
    error = rpc_error(-32001, "Retry limit exceeded")
    assert isinstance(error, RetryLimitExceededError)
    assert isinstance(error, JsonRpcError)
