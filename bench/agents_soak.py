"""`python -m bench agents-soak`: trees of agents with faults at random, and what must hold afterwards.

Each tree is a thread whose model starts sub-agents, which may start some of their own, speaks to them, waits for them,
closes them and opens them again, by a script that the seed decides. Meanwhile somebody interrupts, steers, archives and
deletes threads of it, goes and comes back, and keeps the store busy. When nothing runs any more, these are looked for:

    lost      the last turn of an open sub-agent that its parent's model was not told of; a thread without its parent
    doubled   an end that was told in a notification twice, or after `wait_agent` had returned it
    left      a turn, item, lock, thread in memory or row that is still there when it should not be
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from treadle.agent.thread.thread import Thread
from treadle.errors import RpcError
from treadle.server import AppServer
from treadle.store.sqlite.sqlite_store import FILE_NAME
from treadle.testing import AppServerHarness, HarnessClient, MockModel, RecordedRequest, Reply, ToolCall, replies

AT_A_TIME: Final = 3
SETTLE_S: Final = 60.0  # longer than two waits of the model, one in the other
SETTINGS: Final = "[agents]\nmax_depth = 2\nmax_threads = 8\n"
NOTIFICATION: Final = "<subagent_notification>"
KINDS: Final = ["vscode", "subAgent"]

Step = dict[str, Any]


# --- what the agents do -----------------------------------------------------------------------------------------------


def script(chosen: random.Random, names: itertools.count[int], depth: int = 0) -> str:
    """What an agent does: a list of steps, of which some start agents with scripts of their own."""
    steps: list[Step] = []
    spawned = 0
    for _ in range(chosen.randint(1, 4) if depth == 0 else chosen.randint(0, 2)):
        if depth < 2 and (spawned == 0 or chosen.random() < 0.6):
            task = {"message": script(chosen, names, depth + 1), "wake": chosen.random() < 0.3}
            steps.append(_call("spawn_agent", **task))
            spawned += 1
        elif spawned:
            target = f"${chosen.randint(1, spawned)}"
            steps.append(
                chosen.choice(
                    [
                        _call("wait_agent", targets=[target]),
                        _call("wait_agent", targets=[f"${each + 1}" for each in range(spawned)]),
                        _call("send_input", target=target, message=script(chosen, names, 2)),
                        _call("send_input", target=target, message=script(chosen, names, 2), interrupt=True),
                        _call("close_agent", target=target),
                        _call("resume_agent", id=target),
                    ]
                )
            )
    end: Step = {"say": f"end {next(names)}", "delay": chosen.choice([0.0, 0.0, 0.02, 0.1])}
    steps.append({"fail": chosen.choice(["status", "drop"])} if chosen.random() < 0.1 else end)
    return f"DO:{json.dumps(steps)}"


def _call(name: str, **args: Any) -> Step:
    return {"call": name, "args": args}


class ScriptedModel(MockModel):
    """It does what the last script says that it was given; everything that it says is different."""

    def __init__(self) -> None:
        self._ends = itertools.count(1)
        self.last: dict[str, RecordedRequest] = {}  # of each thread
        super().__init__(on_empty=self._play)

    def _play(self, request: RecordedRequest) -> Reply:
        self.last[request.header("thread-id") or ""] = request
        with self._changed:
            self._requests.clear()  # each holds a whole conversation, and the memory is measured
        items = request.input
        begun = max((at for at, item in enumerate(items) if _text(item).startswith("DO:")), default=None)
        if begun is not None:
            done = sum(item.get("type") == "function_call" or item.get("role") == "assistant" for item in items[begun:])
            steps: list[Step] = json.JSONDecoder().raw_decode(_text(items[begun])[3:])[0]
            if done < len(steps):
                return self._reply_to(steps[done], items)
        return self.reply_message(f"more {next(self._ends)}")

    def _reply_to(self, step: Step, items: Sequence[dict[str, Any]]) -> Reply:
        match step:
            case {"fail": "drop"}:
                return Reply(dropped=True)
            case {"fail": _}:
                return replies.error_reply(500, {"error": {"message": "no model", "type": "x", "code": None}})
            case {"say": text}:
                return self.reply_message(f"{text} {next(self._ends)}", delay_s=step["delay"])
        outputs = [str(item.get("output")) for item in items if item.get("type") == "function_call_output"]
        ids = [json.loads(output)["agent_id"] for output in outputs if output.startswith('{"agent_id"')]

        def filled(value: Any) -> Any:
            if isinstance(value, list):
                return [filled(each) for each in value]
            if isinstance(value, str) and value[:1] == "$":
                number = int(value[1:])
                return ids[number - 1] if number <= len(ids) else "nobody"
            return value

        args = {name: filled(value) for name, value in step["args"].items()}
        return self.reply_calls(ToolCall(f"multi_agent_v1__{step['call']}", args))


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content or ()]
    return next((text for text in reversed(texts) if text.startswith("DO:")), "") if item.get("role") == "user" else ""


# --- what is looked for -----------------------------------------------------------------------------------------------


@dataclass
class Told:
    """What a model was told of its sub-agents: every word of each, in order, and by what."""

    words: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    spawned: set[str] = field(default_factory=set)
    reopened: set[str] = field(default_factory=set)  # what they did while they were closed is nobody's business

    @classmethod
    def read(cls, items: Sequence[dict[str, Any]]) -> Told:
        told = cls()
        for item in items:
            output = str(item.get("output") or "")
            content = item.get("content")
            parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content or ()]
            if item.get("role") == "user":
                for text in parts:
                    if text.startswith(NOTIFICATION):
                        news = json.loads(text.splitlines()[1])
                        told._add(news["agent_path"], "notification", news["status"])
            elif output.startswith('{"status":{'):
                for child, status in json.loads(output)["status"].items():
                    told._add(child, "wait", status)
            elif str(item.get("name")).endswith("resume_agent"):
                told.reopened.add(json.loads(str(item["arguments"])).get("id", ""))
            elif output.startswith('{"agent_id"'):
                told.spawned.add(json.loads(output)["agent_id"])
        return told

    def _add(self, child: str, way: str, status: object) -> None:
        self.words.setdefault(child, []).append((way, json.dumps(status)))

    def doubled(self) -> list[str]:
        """Ends that were told again. What has no text of its own (an interrupted turn) looks the same every time."""
        found = []
        for child, words in self.words.items():
            known: set[str] = set()
            for way, word in words:
                if way == "notification" and word in known and "end " in word:
                    found.append(f"{child} was told twice: {word}")
                known.add(word)
        return found


@dataclass
class Tally:
    trees: int = 0
    threads: int = 0
    deleted: int = 0  # trees whose root a fault has removed
    faults: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)


# --- the soak ---------------------------------------------------------------------------------------------------------


class Stage:
    def __init__(self, harness: AppServerHarness, server: AppServer, watcher: HarnessClient, tally: Tally) -> None:
        self.harness = harness
        self.server = server
        self.watcher = watcher
        self.tally = tally
        assert isinstance(harness.model, ScriptedModel)
        self.model: ScriptedModel = harness.model

    def started(self, root: str) -> list[str]:
        """All threads of a tree that were ever heard of, the root first."""
        threads = [each["params"]["thread"] for each in self.watcher.told("thread/started")]
        return [thread["id"] for thread in threads if thread["sessionId"] == root]

    def running(self, root: str) -> list[str]:
        found = (self.server.threads.get(each) for each in self.started(root))
        return [thread.id for thread in found if thread is not None and thread.turn_id is not None]


class Tree:
    """One thread with all that comes of it."""

    def __init__(self, stage: Stage, number: int, seed: int) -> None:
        self._stage = stage
        self._random = random.Random(f"{seed}/{number}")
        self._names = itertools.count(1)
        self._label = f"tree {number}"
        self._faults: list[str] = []
        self.root = ""

    def _problem(self, text: str) -> None:
        said = f"{self._label}: {text} (after {', '.join(self._faults) or 'nothing'})"
        self._stage.tally.problems.append(said)

    async def run(self) -> None:
        ask = self._stage.watcher.request
        self.root = (await ask("thread/start", {}))["thread"]["id"]
        await self._say(self.root, script(self._random, self._names))
        for _ in range(self._random.randint(0, 5)):
            await asyncio.sleep(self._random.choice([0.0, 0.005, 0.02, 0.05, 0.1]))
            await self._fault()
        await self._settle()
        store = await self._stage.server.store()
        if await store.load(self.root) is None:
            self._stage.tally.deleted += 1
        else:
            await self._look()
            await self._try("the last deletion", ask("thread/delete", {"threadId": self.root}), may_fail=False)
        self._stage.tally.trees += 1
        self._stage.tally.threads += len(self._stage.started(self.root))
        await self._check_gone()

    async def _say(self, thread: str, text: str) -> str | None:
        params = {"threadId": thread, "input": [{"type": "text", "text": text}]}
        started = await self._try("turn/start", self._stage.watcher.request("turn/start", params))
        return None if started is None else str(started["turn"]["id"])

    async def _try(self, what: str, work: Awaitable[Any], *, may_fail: bool = True) -> Any:
        """A refusal is an answer; none within the time is not."""
        try:
            async with asyncio.timeout(SETTLE_S):
                return await work
        except RpcError as error:
            self._stage.tally.refused[what] += 1
            self._faults.append(f"{what} refused: {error.message[:200]}")
            if not may_fail or "internal error" in error.message:
                self._problem(f"{what}: {error.message}")
        except TimeoutError:
            self._problem(f"{what} is not answered")
        return None

    # --- faults ---

    async def _fault(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            *[self._interrupt, self._interrupt_child, self._archive_child, self._delete_child, self._steer],
            *[self._talk_to_child, self._client_goes, self._busy, self._resume_child, self._unload, self._archive],
            *[self._delete, self._rollback],
        ]
        rare = (self._archive, self._delete, self._rollback)
        chosen = self._random.choices(faults, [1 if each in rare else 3 for each in faults])[0]
        self._faults.append(chosen.__name__.removeprefix("_"))
        self._stage.tally.faults[self._faults[-1]] += 1
        await chosen()

    async def _ask(self, method: str, thread: str, **more: Any) -> Any:
        return await self._try(method, self._stage.watcher.request(method, {"threadId": thread, **more}))

    def _child(self) -> str:
        return self._random.choice(self._stage.started(self.root))

    async def _interrupt(self) -> None:
        await self._ask("turn/interrupt", self.root, turnId="")

    async def _interrupt_child(self) -> None:
        await self._ask("turn/interrupt", self._child(), turnId="")

    async def _archive_child(self) -> None:
        if (child := self._child()) != self.root:
            await self._ask("thread/archive", child)

    async def _delete_child(self) -> None:
        if (child := self._child()) != self.root:
            await self._ask("thread/delete", child)

    async def _steer(self) -> None:
        thread = self._stage.server.threads.get(self.root)
        if thread is not None and thread.turn_id is not None:
            given = [{"type": "text", "text": "hurry"}]
            await self._ask("turn/steer", self.root, expectedTurnId=thread.turn_id, input=given)

    async def _talk_to_child(self) -> None:
        await self._say(self._child(), script(self._random, self._names, 2))

    async def _client_goes(self) -> None:
        async with self._stage.harness.connect("guest", server=self._stage.server) as guest:
            await self._try("thread/resume", guest.request("thread/resume", {"threadId": self.root}))
            given = {
                "threadId": self._child(),
                "input": [{"type": "text", "text": script(random.Random(1), self._names, 2)}],
            }
            await self._try("turn/start", guest.request("turn/start", given))

    async def _busy(self) -> None:
        """Another program writes the store, for less long than a server waits for that."""
        path, held_s = self._stage.harness.home / FILE_NAME, self._random.choice([0.02, 0.1])

        def hold() -> None:
            other = sqlite3.connect(path, isolation_level=None, timeout=10)
            try:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(held_s)
                other.execute("ROLLBACK")
            finally:
                other.close()

        await asyncio.to_thread(hold)

    async def _resume_child(self) -> None:
        await self._ask("thread/resume", self._child())

    async def _unload(self) -> None:
        """As after half an hour without a client."""
        for thread in self._stage.started(self.root):
            await self._ask("thread/unsubscribe", thread)
            if (loaded := self._stage.server.threads.get(thread)) is not None:
                await loaded.published()
        await self._stage.server.threads.unload_idle(time.monotonic())
        await self._ask("thread/resume", self.root)

    async def _archive(self) -> None:
        await self._ask("thread/archive", self.root)

    async def _delete(self) -> None:
        await self._ask("thread/delete", self.root)

    async def _rollback(self) -> None:
        await self._ask("turn/interrupt", self.root, turnId="")
        await self._ask("thread/rollback", self.root, numTurns=1)

    # --- what must hold ---

    async def _settle(self) -> None:
        """Until nothing runs: nothing that was begun goes on by itself for longer."""
        end = asyncio.get_running_loop().time() + SETTLE_S
        still = 0
        while still < 3:
            for each in self._stage.started(self.root):
                if (loaded := self._stage.server.threads.get(each)) is not None:
                    await loaded.published()
            still = 0 if self._stage.running(self.root) else still + 1
            if asyncio.get_running_loop().time() > end:
                self._problem(f"it does not come to an end: {self._stage.running(self.root)}")
                return
            await asyncio.sleep(0.01)

    async def _look(self) -> None:
        server, watcher = self._stage.server, self._stage.watcher
        store = await server.store()
        record = await store.load(self.root)
        if record is not None and record.record.archived:
            await self._ask("thread/unarchive", self.root)
        await self._try("the last resume", watcher.request("thread/resume", {"threadId": self.root}), may_fail=False)
        turn = await self._say(self.root, 'DO:[{"say": "last", "delay": 0}]')
        if turn is None:
            self._problem("it cannot go on")
            return
        await self._settle()
        loaded = server.threads.get(self.root)
        assert loaded is not None
        await loaded.published()
        last = await store.turn(self.root, turn)
        if last is None or last.status != "completed":
            self._problem(f"its last turn is {None if last is None else (last.status, last.error)}")
        thread: Thread = loaded._thread
        told = Told.read(self._stage.model.last[self.root].input)
        for each in self._stage.started(self.root):
            if each in self._stage.model.last:
                for problem in Told.read(self._stage.model.last[each].input).doubled():
                    self._problem(f"{each}: {problem}")
        for child, known in thread.state.children.items():
            stored = await store.load(child)
            turns = await store.turns(child, limit=1, descending=True)
            if stored is not None and turns and turns[0].status != "inProgress" and turns[0].id > known.seen:
                self._problem(f"the model was not told how {child} ended")
            if turns and turns[0].status in ("completed", "failed") and child not in {*told.words, *told.reopened}:
                self._problem(f"nothing was ever told of {child}, which has {turns[0].status}")
        for each in self._stage.started(self.root):
            await self._check_thread(each, thread, told)

    async def _check_thread(self, thread_id: str, root: Thread, told: Told) -> None:
        store = await self._stage.server.store()
        stored = await store.load(thread_id)
        if stored is None:
            if self._stage.server.threads.get(thread_id) is not None:
                self._problem(f"{thread_id} is in memory and not in the store")
            return
        if any(turn.status == "inProgress" for turn in await store.turns(thread_id)):
            self._problem(f"a turn of {thread_id} is open")
        if not await store.turns(thread_id) and thread_id not in root.state.children and thread_id != root.id:
            parent = stored.record.parent_thread_id
            if parent == root.id and thread_id not in told.spawned and not self._was_rolled_back():
                archived = stored.record.archived
                self._problem(f"{thread_id} was never begun, and is there (archived: {archived})")
        for item in await store.items(thread_id):
            data = json.loads(bytes(item.data))
            if data.get("status") == "inProgress":
                self._problem(f"an item of {thread_id} is open: {data['type']} {data.get('tool')}")

    def _was_rolled_back(self) -> bool:
        told = self._stage.watcher.told("thread/reverted")
        return any(each["params"]["threadId"] == self.root for each in told)

    async def _check_gone(self) -> None:
        """After the deletion nothing is left of it, neither here nor in the store, and everything begun was ended."""
        store = await self._stage.server.store()
        tree = self._stage.started(self.root)
        for _ in range(200):  # what removes itself does so in the background
            left = [each for each in tree if self._stage.server.threads.get(each) or await store.load(each) is not None]
            if not left:
                break
            await asyncio.sleep(0.01)
        for each in left:
            place = "in memory" if self._stage.server.threads.get(each) else "in the store"
            self._problem(f"{each} is left {place}")
        ours = set(tree)
        events = [each for each in self._stage.watcher.messages if each["params"].get("threadId") in ours]
        begun = {each["params"]["item"]["id"] for each in events if each["method"] == "item/started"}
        over = {each["params"]["item"]["id"] for each in events if each["method"] == "item/completed"}
        if begun - over and not self._stage.tally.faults["unload"]:
            self._problem(f"items without an end: {begun - over}")
        turns = Counter(each["params"]["turn"]["id"] for each in events if each["method"] == "turn/completed")
        if any(count > 1 for count in turns.values()):
            self._problem("a turn has ended twice")
        self._stage.watcher.messages[:] = [
            each
            for each in self._stage.watcher.messages
            if each["params"].get("threadId") not in ours and each["params"].get("thread", {}).get("id") not in ours
        ]
        for each in tree:
            self._stage.model.last.pop(each, None)


async def soak(folder: Path, trees: int, seed: int, talk: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Run the trees. Problems are in the tally."""
    tally = Tally()
    async with AsyncExitStack() as stack:
        model = stack.enter_context(ScriptedModel())
        harness = stack.enter_context(AppServerHarness(folder, model=model, extra_toml=SETTINGS))
        server = await stack.enter_async_context(harness.server())
        watcher = await stack.enter_async_context(harness.connect("watcher", server=server))
        stage = Stage(harness, server, watcher, tally)
        numbers = iter(range(trees))

        async def work() -> None:
            for number in numbers:
                await Tree(stage, number, seed).run()
                if number % max(trees // 10, 1) == 0:
                    tally.memory_mb.append(_memory_mb())
                talk(tally)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(work())
        await _check_server(server, watcher, tally)
    return tally


async def _check_server(server: AppServer, watcher: HarnessClient, tally: Tally) -> None:
    """Nothing of any tree is left."""
    for archived in (False, True):
        listed = await watcher.request("thread/list", {"sourceKinds": KINDS, "archived": archived})
        if listed["data"]:
            tally.problems.append(f"{len(listed['data'])} threads are left in the store (archived: {archived})")
    threads = server.threads
    for name in ("_loaded", "_subscribers", "_children", "_sessions", "_locks", "_warm"):
        if getattr(threads, name):
            tally.problems.append(f"{len(getattr(threads, name))} entries are left in LoadedThreads.{name}")
    gc.collect()
    alive = sum(isinstance(each, Thread) and each.services is server for each in gc.get_objects())
    if alive:
        tally.problems.append(f"{alive} threads are still held in memory")
    tally.memory_mb.append(_memory_mb())


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


# --- the program ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench agents-soak",
        description="Trees of agents with faults at random. 1 when something is wrong.",
    )
    parser.add_argument("--trees", type=int, default=200, metavar="N", help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what happens, roughly when (default 1)")
    options = parser.parse_args(arguments)
    told = 0

    def talk(tally: Tally) -> None:
        nonlocal told
        for problem in tally.problems[told:]:
            print(problem, file=sys.stderr, flush=True)
        told = len(tally.problems)

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="treadle-agents-soak-") as folder:
        tally = asyncio.run(soak(Path(folder), options.trees, options.seed, talk))
    talk(tally)
    print(f"{tally.trees} trees, {tally.threads} threads, {tally.deleted} trees deleted by a fault")
    print(f"{time.monotonic() - began:.1f} s; memory in MB: {', '.join(f'{each:.0f}' for each in tally.memory_mb)}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.faults.items())))
    print("refused: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.refused.items())))
    print(f"{len(tally.problems)} problems")
    return 1 if tally.problems else 0
