"""`kill -9` at random points of long turns: what was announced is there, and the thread goes on."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.app_client import AppClient
from kit.app_program import stdio_server
from kit.transports import Gone
from kit.wire_client import Json
from treadle.testing import AppServerHarness, MockModel, RecordedRequest, Reply, ToolCall, replies

KILLS = 20  # `python -m bench kills` has as many as one likes
HOMES = 4
ROUNDS = 4  # model responses of one turn
PIECES = 12


def long_turn(request: RecordedRequest) -> Reply:
    """A response with reasoning, a message in pieces and two commands; the last one of a turn has only the message."""
    done = 0
    for item in reversed(request.input):
        if item.get("role") == "user":
            break
        done += item.get("type") == "function_call_output"
    number = f"{len(request.input)}_{done}"
    pieces = [f"piece {index} of {number}. " for index in range(PIECES)]
    message = replies.message_item(f"msg_{number}", "".join(pieces), None)
    body = [*replies.message_events(message, pieces)]
    if done < 2 * (ROUNDS - 1):
        for index in range(2):
            call_id = f"call_{number}_{index}"
            call = ToolCall("exec_command", {"cmd": f"echo {number}; echo {index}", "login": False}, call_id)
            body += replies.item_events(call.item(call_id), 1 + index)
    return replies.sse_reply(replies.stream(f"resp_{number}", body, [message], None))


class Account:
    """What one thread has announced over all its lives."""

    def __init__(self) -> None:
        self.thread = ""
        self.seq = 0
        self.started: set[str] = set()
        self.completed: dict[str, Json] = {}
        self.ended: dict[str, str] = {}  # turns, with their status
        self.begun: list[str] = []
        self.cut_in_turns = 0

    def take(self, client: AppClient) -> None:
        for message in client.told:
            params = message["params"]
            if message["method"] == "item/started":
                self.started.add(params["item"]["id"])
            elif message["method"] == "item/completed":
                self.completed[params["item"]["id"]] = params["item"]
            elif message["method"] == "turn/completed":
                self.ended[params["turn"]["id"]] = params["turn"]["status"]
            self.seq = max(self.seq, message.get("seq", 0))

    def check(self, client: AppClient) -> None:
        """After a restart, before the thread is touched."""
        turns = client.turns(self.thread)
        assert [turn["id"] for turn in turns][: len(self.begun)] == self.begun
        for turn in turns:
            assert turn["status"] == self.ended.get(turn["id"], turn["status"])
            assert turn["status"] in ("completed", "interrupted"), turn["error"]
        items = {item["id"]: item for turn in turns for item in turn["items"]}
        assert self.started <= items.keys()
        for item_id, item in self.completed.items():
            assert items[item_id] == item
        self._check_events(client)

    def _check_events(self, client: AppClient) -> None:
        seqs: list[int] = []
        while True:
            after = seqs[-1] if seqs else 0
            page = client.call("thread/events/list", {"threadId": self.thread, "afterSeq": after, "limit": 1000})
            seqs += [event["seq"] for event in page["data"]]
            if not page["hasMore"]:
                break
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= self.seq
        self.seq = len(seqs)


def one_life(harness: AppServerHarness, account: Account, rng: random.Random, *, last: bool = False) -> None:
    """Start, look at what the life before has left, begin a turn, and die in the middle of it."""
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        if not account.thread:
            account.thread = client.start_thread(cwd=str(harness.workspace))
        else:
            account.check(client)
            resumed = client.call("thread/resume", {"threadId": account.thread, "excludeTurns": True})
            assert resumed["seq"] == account.seq
        before = account.seq
        turn = client.begin(account.thread, "go on")
        account.begun.append(turn)
        if last:
            assert client.turn_end(turn)["status"] == "completed"
        else:
            for _ in range(rng.randrange(45)):
                client.receive()
                if client.told and client.told[-1]["method"] == "turn/completed":
                    break
        program.kill()
        _read_what_is_left(client)
        account.take(client)
        account.cut_in_turns += turn not in account.ended
        numbered = sorted(
            {each["seq"] for each in client.told if each.get("seq", 0) > before and "delta" not in each["params"]}
        )
        assert numbered == list(range(before + 1, before + 1 + len(numbered)))


def _read_what_is_left(client: AppClient) -> None:
    """What the server had written when it died was announced, too; the last line may be half of one."""
    try:
        while True:
            client.receive()
    except Gone:
        return


def many_lives(folder: Path, model: MockModel, seed: int, lives: int) -> Account:
    rng = random.Random(seed)
    account = Account()
    harness = AppServerHarness(folder, model=model)
    for _ in range(lives):
        one_life(harness, account, rng)
    one_life(harness, account, rng, last=True)
    return account


@pytest.mark.timeout(240)
def test_nothing_that_was_announced_is_lost(tmp_path: Path) -> None:
    with MockModel(on_empty=long_turn) as model, ThreadPoolExecutor(HOMES) as pool:
        runs = [
            pool.submit(many_lives, tmp_path / str(number), model, number, KILLS // HOMES) for number in range(HOMES)
        ]
        accounts = [run.result() for run in runs]
    # Many of them have hit a turn that ran, however fast the machine is.
    assert sum(account.cut_in_turns for account in accounts) > KILLS // 4
    assert sum(len(account.completed) for account in accounts) > KILLS
