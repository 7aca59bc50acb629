"""What an agent says to who uses it wrongly."""

from __future__ import annotations

import logging
import math
import os
import signal
from dataclasses import fields
from typing import Any

import pytest

from treadle.errors import ArgumentTypeError, ArgumentValueError
from treadle.host import HostAgent, Timeouts, WrongProcess
from treadle.testing import DONE, ScriptedRuntime, said


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"timeouts": 5}, "timeouts must be Timeouts"),
        ({"provider": ""}, "provider is empty"),
        ({"runtime": "appserver"}, "'app_server'"),
        ({"session_id": "x"}, "store="),
    ],
)
def test_what_cannot_be_is_said_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words):
        HostAgent(**wrong)


def test_a_limit_is_a_number_of_seconds_and_may_be_infinite() -> None:
    names = [field.name for field in fields(Timeouts) if field.name != "quiet_action"]
    limits: Any = Timeouts
    for name in names:
        for wrong in (-1, math.nan, "3", True):
            with pytest.raises((ArgumentTypeError, ArgumentValueError), match=f"{name} must be a number of seconds"):
                limits(**{name: wrong})
    without = limits(**dict.fromkeys(names, math.inf))
    assert without == limits(**dict.fromkeys(names, None))
    with HostAgent(ScriptedRuntime([[said("a"), DONE]]), timeouts=without) as agent:
        assert agent.run_conversation("one").completed


@pytest.mark.parametrize("message", ["", " \n", [], [{"type": "text", "text": ""}], [3], {"role": "user"}, None, b"x"])
def test_a_message_that_is_none_is_not_kept(message: Any) -> None:
    with HostAgent(ScriptedRuntime([])) as agent:
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match="user_message"):
            agent.run_conversation(message)
        assert agent.messages == []
        assert agent.user_turn_count == 0


def test_a_forked_process_is_told_to_make_its_own() -> None:
    with HostAgent(ScriptedRuntime([[said("a"), DONE], [said("b"), DONE]])) as agent:
        assert agent.run_conversation("one").completed
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            signal.alarm(30)  # whatever happens, nobody waits for it for ever
            words = ""
            for use in (lambda: agent.run_conversation("two"), lambda: agent.steer("x"), agent.interrupt, agent.close):
                try:
                    use()
                except WrongProcess:
                    words += "no "
            os.write(tell, (words + str(agent.closed)).encode())
            os._exit(0)
        os.close(tell)
        # It is empty when the child was ended.
        assert os.read(told, 100) == b"no no True"
        os.close(told)
        os.waitpid(child, 0)
        assert agent.run_conversation("two").final_response == "b"


def test_an_error_that_nobody_foresaw_is_logged_with_its_place_and_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:

    class Broken(Exception):
        pass

    def make() -> ScriptedRuntime:
        raise Broken("no such thing as sk-0123456789abcdef")

    with HostAgent(make) as agent, caplog.at_level(logging.WARNING):
        result = agent.run_conversation("hello")
    assert result.error == "no such thing as [redacted]"
    assert "[redacted]" in caplog.text
    assert "0123456789abcdef" not in caplog.text
    assert "test_host_misuse" in caplog.text  # where it was
