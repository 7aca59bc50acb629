"""When a thread goes on looking for its commands on another machine, and when it gives them up."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.agent.thread import found_commands
from treadle.errors import INVALID_REQUEST, SESSION_ATTACHED, ExecError

pytestmark = pytest.mark.anyio


class Machine:
    """It refuses a session for these reasons, one after the other."""

    def __init__(self, *reasons: int) -> None:
        self.reasons = list(reasons)

    async def take_up(self, session_id: str) -> None:
        raise ExecError("no", self.reasons.pop(0))


def thread_with_a_command(machine: Machine) -> Any:
    command = SimpleNamespace(environment="box", session="s")
    services = SimpleNamespace(machine=lambda environment: machine)
    return SimpleNamespace(id="t", closing=False, services=services, state=SimpleNamespace(commands={"item": command}))


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The items whose commands were given up; nobody waits between two attempts."""
    found: list[str] = []

    async def forget(thread: object, items: Iterable[str]) -> None:
        found.extend(items)

    monkeypatch.setattr(found_commands, "_forget", forget)
    monkeypatch.setattr(found_commands, "FIRST_PAUSE_S", 0.0)
    return found


@pytest.mark.parametrize("for_now", [SESSION_ATTACHED, -32603], ids=["in use", "unreachable"])
async def test_a_session_that_cannot_be_had_now_is_asked_for_again(forgotten: list[str], for_now: int) -> None:
    machine = Machine(for_now, for_now, INVALID_REQUEST)
    await found_commands.find_commands(thread_with_a_command(machine))
    assert machine.reasons == []
    assert forgotten == ["item"]


async def test_what_was_not_reached_in_time_is_not_given_up(
    forgotten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_commands, "FIND_S", -1.0)
    machine = Machine(SESSION_ATTACHED, INVALID_REQUEST)
    await found_commands.find_commands(thread_with_a_command(machine))
    assert machine.reasons == [INVALID_REQUEST]
    assert forgotten == []
