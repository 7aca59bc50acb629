"""The rounds of the soak: every thread has something to do, a fault comes in the middle of it and goes, and all that
was said is compared with what was done; then every thread has to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.environments_soak.calls import Call, Command, Patch, Seen
from bench.environments_soak.calls import draw as draw_calls
from bench.environments_soak.client import Client
from bench.environments_soak.faults import Fault, Faults
from bench.environments_soak.faults import draw as draw_faults
from bench.environments_soak.machines import APP_PORT, DIAL, NAMES, POOL, Machines
from bench.environments_soak.model import MARK, SoakModel, Step
from bench.environments_soak.network import Network
from treadle.errors import ChannelClosed

BEGIN_S: Final = 30.0
END_S: Final = 120.0
NEXT_S: Final = 60.0
ROUNDS_OF_A_THREAD: Final = 6
PLACES: Final = (*NAMES, *NAMES, POOL)


@dataclass
class Tally:
    faults: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    next_s: list[float] = field(default_factory=list)
    printed: int = 0
    hit: int = 0  # calls on the machine of a fault that were not over when it came
    disconnected: int = 0  # as the threads were told, each for itself
    problems: list[str] = field(default_factory=list)


class Worker:
    """One thread, and its successors."""

    def __init__(self, number: int, environment: str, machines: Machines) -> None:
        self.number = number
        self.environment = environment
        machine = DIAL[0] if environment == POOL else environment  # the disks are shared
        self.truth = machines.truth(machine)
        self.cwd = machines.small(machine) / f"t{number}"
        (self.cwd / "new").mkdir(parents=True)
        Patch.prepare(self.cwd)
        self.thread = ""
        self.turn: str | None = None
        self.calls: Sequence[Call] = ()


class Soak:
    def __init__(self, network: Network, machines: Machines, model: SoakModel, seed: int, tally: Tally) -> None:
        self._network = network
        self._machines = machines
        self._model = model
        self._chance = random.Random(seed)
        self._tally = tally
        self._client = Client(f"wss://127.0.0.1:{APP_PORT}", machines.token, machines.folder / "cert.pem")
        self._faults = Faults(network, machines, self._chance)
        self._workers = [Worker(number, place, machines) for number, place in enumerate(PLACES)]
        self._may_lose: set[str] = set()
        self._label = ""
        self._answered: set[tuple[str, int]] = set()

    def _problem(self, text: str) -> None:
        self._tally.problems.append(f"{self._label}: {text}")

    async def run(self, faults: int, only: list[str] | None, talk: Callable[[str], None]) -> None:
        for each in self._machines.all:
            each.start()
        await self._client.open()
        done = number = 0
        while done < faults:
            if number % ROUNDS_OF_A_THREAD == 0:
                await self._new_threads()
            chosen = draw_faults(self._chance, only)
            self._label = f"round {number} ({' and '.join(map(str, chosen))})"
            before, began = len(self._tally.problems), time.monotonic()
            await self._round(number, chosen)
            done += len(chosen)
            number += 1
            self._tally.faults.update(fault.name for fault in chosen)
            found = self._tally.problems[before:]
            talk("\n  ".join([f"{self._label}: {time.monotonic() - began:.1f} s, {len(found)} problems", *found]))
        await self._client.close()
        self._tally.disconnected = self._client.disconnected
        self._check_logs()

    def _check_logs(self) -> None:
        self._label = "the logs"
        for each in self._machines.all:
            text = each.log.read_text(errors="replace")
            for sign in ("Traceback", "failed inside the server", "was never awaited", "Segmentation"):
                if sign in text:
                    at = text.index(sign)
                    self._problem(f"{each.folder.name}: {text[max(0, at - 300) : at + 1500]}")

    async def _new_threads(self) -> None:
        for worker in self._workers:
            if worker.thread:
                await self._client.call("thread/delete", {"threadId": worker.thread})
                self._model.last.pop(worker.thread, None)
            place = {"environmentId": worker.environment, "cwd": str(worker.cwd)}
            params = {"cwd": str(worker.cwd), "environments": [place]}
            worker.thread = (await self._client.call("thread/start", params))["thread"]["id"]
        for worker in self._workers:
            if not await self._goes_on(worker, "first"):
                self._problem(f"thread {worker.number} on {worker.environment} does not begin")

    # --- a round ---

    async def _round(self, number: int, faults: Sequence[Fault]) -> None:
        self._may_lose = {place for place in PLACES for fault in faults if fault.kind.loses and fault.hits(place)}
        for worker in self._workers:
            worker.calls = draw_calls(self._chance, f"r{number}t{worker.number}", worker.truth, worker.cwd)
            steps = [step for call in worker.calls for step in call.steps()]
            asks = any(isinstance(call, Command) and call.answer is not None for call in worker.calls)
            worker.turn = await self._begin(worker, steps, "untrusted" if asks else "never")
        hit = [worker for worker in self._workers if any(fault.hits(worker.environment) for fault in faults)]
        for worker in hit:
            call = self._chance.choice(worker.calls) if self._chance.random() < 0.5 else worker.calls[0]
            if not await self._until(lambda call=call: self._is_underway(call), BEGIN_S):  # type: ignore[misc]
                self._problem(f"{call.name} did not begin; {self._state(worker)}")
        await asyncio.sleep(self._chance.uniform(0, 0.6))
        open_calls = [call for worker in hit for call in worker.calls if call.name not in self._client.completed]
        self._tally.hit += len(open_calls)
        answering = asyncio.ensure_future(self._answer_meanwhile(faults))
        killer = any("killed" in fault.name and fault.kind.on_app for fault in faults)
        life = self._client.lives
        await asyncio.gather(*(fault.kind.run(self._faults, fault.machine, fault.holds) for fault in faults))
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        if killer:
            await self._come_back()
        await self._settle(life if killer else None)
        # Only then: another turn might change what is compared.
        for worker in self._workers:
            began = time.monotonic()
            if not await self._goes_on(worker, f"n{number}"):
                self._problem(f"thread {worker.number} on {worker.environment} does not go on")
            if worker in hit:
                self._tally.next_s.append(time.monotonic() - began)

    def _is_underway(self, call: Call) -> bool:
        """Whether a fault would hit it in the middle; answers what has to be answered before."""
        name = call.name
        if isinstance(call, Command) and call.answer is not None:
            if call.when != "before":
                return bool(self._client.asked.get(name) or self._client.completed.get(name))
            self._answer(call)
        if isinstance(call, Patch):
            return name in self._client.started
        return name in self._client.deltas or name in self._client.completed

    async def _until(self, true: Callable[[], bool], deadline_s: float) -> bool:
        def looked() -> bool:
            for worker in self._workers:
                for call in worker.calls:
                    if isinstance(call, Command) and call.when == "before":
                        self._answer(call)
            return true()

        return await self._client.until(looked, deadline_s)

    def _answer(self, call: Command) -> None:
        """Answer the question about a call once in each life of the server."""
        asked = self._client.asked.get(call.name)
        if call.answer is None or not asked or asked[-1][0] != self._client.lives:
            return
        life, request = asked[-1]
        if (call.name, life) not in self._answered:
            with contextlib.suppress(ChannelClosed):
                self._client.answer(request, {"decision": call.answer})
            self._answered.add((call.name, life))

    async def _answer_meanwhile(self, faults: Sequence[Fault]) -> None:
        await asyncio.sleep(min(fault.holds for fault in faults) * self._chance.random())
        for worker in self._workers:
            for call in worker.calls:
                if isinstance(call, Command) and call.when == "during":
                    self._answer(call)

    async def _come_back(self) -> None:
        await self._client.close()
        await self._client.open()
        for worker in self._workers:
            await self._client.call("thread/resume", {"threadId": worker.thread, "excludeTurns": True})

    async def _begin(self, worker: Worker, steps: Sequence[Step], policy: str = "never") -> str:
        said = [{"type": "text", "text": f"{MARK}{json.dumps(steps)}"}]
        params = {"threadId": worker.thread, "input": said, "approvalPolicy": policy}
        turn: str = (await self._client.call("turn/start", params))["turn"]["id"]
        return turn

    # --- what must hold ---

    async def _settle(self, killed: int | None) -> None:
        """Until everything has ended; then compare."""
        if killed is None:
            for worker in self._workers:
                for call in worker.calls:
                    if isinstance(call, Command):
                        call.when = "before"  # the rest of the questions
                turn = worker.turn
                assert turn is not None
                if not await self._until(lambda turn=turn: turn in self._client.turns, END_S):  # type: ignore[misc]
                    self._problem(f"thread {worker.number} does not end its turn; {self._state(worker)}")
                    await self._client.call("turn/interrupt", {"threadId": worker.thread, "turnId": turn})
        else:
            for worker in self._workers:
                for call in worker.calls:
                    if isinstance(call, Command):
                        (worker.truth / f"{call.name}.stop").touch()
        for worker in self._workers:
            for call in worker.calls:
                await self._check(worker, call, killed)
            ends = [] if worker.turn is None else self._client.turns.get(worker.turn, [])
            if killed is None and [each["status"] for each in ends] != ["completed"]:
                self._problem(
                    f"the turn of thread {worker.number} ended {[(e['status'], e.get('error')) for e in ends]}"
                )

    async def _check(self, worker: Worker, call: Call, killed: int | None) -> None:
        """What was found after the end; after a kill until it is right, as far as it can become right."""
        end = time.monotonic() + (10.0 if killed is None else NEXT_S)
        while True:
            item = await self._item(worker, call)
            running = isinstance(call, Command) and call.runs
            open_ = running or (item is not None and item["status"] == "inProgress")
            seen = Seen(
                item=item,
                completed=self._client.completed.get(call.name, []),
                deltas=self._client.deltas.get(call.name, []),
                told=self._model.told(worker.thread, call.name),
                asked=len(self._client.asked.get(call.name, [])),
                may_lose=worker.environment in self._may_lose,
                killed=killed,
            )
            problems = list(call.check(seen)) if not open_ else [f"is open: runs: {running}, item: {_brief(item)}"]
            if not problems or time.monotonic() > end or not (open_ or killed is not None):
                break
            await asyncio.sleep(0.2)
        kind = type(call).__name__
        self._tally.calls[kind] += 1
        self._tally.ends[
            f"{kind} {None if item is None else item['status']} {'' if item is None else item.get('exitCode', '')}"
        ] += 1
        self._tally.printed += 0 if item is None else len(item.get("aggregatedOutput") or "")
        for problem in problems:
            self._problem(f"{call.name} on {worker.environment} ({kind}) {problem}")

    async def _item(self, worker: Worker, call: Call) -> dict[str, Any] | None:
        read = await self._client.call("thread/read", {"threadId": worker.thread, "includeTurns": True})
        items = [item for turn in read["thread"]["turns"] for item in turn["items"] if item["id"] == call.name]
        if len(items) > 1:
            self._problem(f"{call.name} has {len(items)} items")
        return items[0] if items else None

    async def _goes_on(self, worker: Worker, name: str) -> bool:
        """Whether a command runs in a next turn, in time; the first may say that the machine cannot be reached yet."""
        end = time.monotonic() + NEXT_S
        for attempt in range(100):
            word = f"{name}-{worker.number}-{attempt}-alive"
            step = {"id": word, "tool": "exec_command", "args": {"cmd": f"echo {word}", "login": False}}
            turn = await self._begin(worker, [step])
            if not await self._until(lambda turn=turn: turn in self._client.turns, END_S):  # type: ignore[misc]
                self._problem(f"thread {worker.number}: the next turn does not end; {self._state(worker)}")
                return False
            if f"\n{word}\n" in "".join(self._model.told(worker.thread, word)):
                return True
            if time.monotonic() > end:
                self._problem(f"the last that was said: {self._model.told(worker.thread, word)}")
                return False
            await asyncio.sleep(0.5)
        return False

    def _state(self, worker: Worker) -> str:
        said = {
            call.name: (len(self._client.deltas.get(call.name, ())), len(self._client.asked.get(call.name, ())))
            for call in worker.calls
        }
        told = {
            call.name: [text[-200:] for text in self._model.told(worker.thread, call.name)] for call in worker.calls
        }
        return f"{said} {told} {self._client.warned[-2:]}"


def _brief(item: dict[str, Any] | None) -> str:
    return "none" if item is None else f"{item['status']} {item.get('exitCode')}"


def soak(folder: Path, faults: int, seed: int, only: list[str] | None, talk: Callable[[str], None]) -> Tally:
    """Inside of the namespaces."""
    tally = Tally()
    network = Network(f"soak{os.getppid()}", NAMES, seed)
    with network.up(), SoakModel() as model:
        machines = Machines(folder, network, model.base_url)
        try:
            asyncio.run(Soak(network, machines, model, seed, tally).run(faults, only, talk))
        finally:
            machines.close()
    return tally
