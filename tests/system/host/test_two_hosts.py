"""Two processes whose agents share a file of conversations: a message is there once, and in its place."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from treadle.host import ConversationStore, HostAgent
from treadle.store import StoreError
from treadle.testing import DONE, ScriptedRuntime, said

DEADLINE_S = 100
TURNS = 12
# Runs turns in a conversation that another process wants, too: each has an agent of its own, which is closed after it.
# With `killed`, it dies in the middle of its last turn.
PROGRAM = """
import os, signal, sys
from treadle.host import HostAgent
from treadle.store.contract import StoreError
from treadle.testing.scripted_runtime import DONE, ScriptedRuntime, said

path, name, turns, killed = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "killed"

async def die(runtime):
    os.kill(os.getpid(), signal.SIGKILL)

refused = number = 0
while number < turns:
    last = killed and number == turns - 1
    script = [die] if last else [said(f"{name} has {number}"), DONE]
    with HostAgent(runtime=ScriptedRuntime([script]), store=path, session_id="shared", review=False) as agent:
        try:
            agent.run_conversation(f"{name} {number}")
        except StoreError as error:
            assert error.kind == "claimed", error
            assert "holds the conversation shared: close it there first" in error.message
            refused += 1
            continue
    number += 1
print(refused)
"""


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_one_conversation(end: str, tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    with ExitStack() as stack:
        programs = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", PROGRAM, path, name, str(TURNS), end], stdout=subprocess.PIPE)
            )
            for name in ("a", "b")
        ]
        for program in programs:
            stack.callback(program.kill)
            assert program.wait(DEADLINE_S) == (-9 if end == "killed" else 0)
    with closing(ConversationStore(path)) as store:
        messages = [(record.message["role"], record.message["content"]) for record in store.messages("shared")]
    asked = Counter(content for role, content in messages if role == "user")
    assert asked == {f"{name} {number}": 1 for name in ("a", "b") for number in range(TURNS)}
    for (role, content), (_, answer) in pairwise(messages):
        name, number = content.split()[0], content.split()[-1]
        cut_off = end == "killed" and number == str(TURNS - 1)
        if role == "user" and not cut_off:
            assert answer == f"{name} has {number}", messages


def test_the_second_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"

    def agent() -> HostAgent:
        runtime = ScriptedRuntime([[said("Hello."), DONE]])
        return HostAgent(runtime=runtime, store=path, session_id="shared", review=False)

    with agent() as first, agent() as second:
        first.run_conversation("hello")
        with pytest.raises(StoreError, match="holds the conversation shared: close it there first, or go on with"):
            second.run_conversation("hello, too")
        first.close()
        assert second.run_conversation("hello, too").final_response == "Hello."
        assert [message["content"] for message in second.messages] == ["hello", "Hello.", "hello, too", "Hello."]
