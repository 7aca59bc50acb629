"""The faults: what is done to a machine, or to the app-server, and undone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bench.environments_soak.machines import DIAL, NAMES, POOL, Machines
from bench.environments_soak.network import Network

CLOCKS: Final = (-30 * 86400, -3600, -5, 5, 3600, 30 * 86400)


@dataclass(frozen=True)
class Kind:
    """`holds` is how many seconds it lasts, from and to. `loses`: commands under way may end with it, and be lost."""

    run: Callable[[Faults, str, float], Awaitable[None]]
    holds: tuple[float, float]
    weight: int = 3
    loses: bool = False
    on_app: bool = False


class Faults:
    def __init__(self, network: Network, machines: Machines, chance: random.Random) -> None:
        self._network = network
        self._machines = machines
        self._chance = chance

    # --- the network ---

    async def cut(self, machine: str, holds: float) -> None:
        self._network.link(machine, "down")
        await asyncio.sleep(holds)
        self._network.heal(machine)

    async def silence(self, machine: str, holds: float) -> None:
        directions = self._chance.choice([("there",), ("back",), ("there", "back")])
        self._network.wires[machine].silent = frozenset(directions)
        await asyncio.sleep(holds)
        self._network.heal(machine)

    async def reset(self, machine: str, holds: float) -> None:
        self._network.reset(machine)
        await asyncio.sleep(holds)
        self._network.heal(machine)

    async def slow(self, machine: str, holds: float) -> None:
        wire = self._network.wires[machine]
        wire.delay_s, wire.jitter_s = self._chance.choice([(0.02, 0.0), (0.1, 0.05), (0.4, 0.2)])
        wire.loss = self._chance.choice([0.0, 0.02, 0.1])
        await asyncio.sleep(holds)
        self._network.heal(machine)

    async def flap(self, machine: str, holds: float) -> None:
        """Resets, one after the other."""
        for _ in range(4):
            await self.reset(machine, holds / 8)
            await asyncio.sleep(self._chance.uniform(0, holds / 4))

    # --- the machine ---

    async def killed(self, machine: str, holds: float) -> None:
        executor = self._machines.executors[machine]
        executor.kill()
        await asyncio.sleep(holds)
        executor.start()

    async def stopped(self, machine: str, holds: float) -> None:
        executor = self._machines.executors[machine]
        pids = executor.freeze(everything=self._chance.random() < 0.5)
        await asyncio.sleep(holds)
        executor.thaw(pids)

    async def clock(self, machine: str, holds: float) -> None:
        executor = self._machines.executors[machine]
        executor.set_clock(self._chance.choice(CLOCKS))
        await asyncio.sleep(holds)
        executor.set_clock(0)

    async def full_disk(self, machine: str, holds: float) -> None:
        filler = self._machines.small(machine) / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:  # it is full
                await asyncio.sleep(holds)
        filler.unlink()

    # --- the app-server ---

    async def app_killed(self, machine: str, holds: float) -> None:
        self._machines.app.kill()
        await asyncio.sleep(holds)
        self._machines.app.start()

    async def app_stopped(self, machine: str, holds: float) -> None:
        pids = self._machines.app.freeze(everything=False)
        await asyncio.sleep(holds)
        self._machines.app.thaw(pids)

    async def app_clock(self, machine: str, holds: float) -> None:
        self._machines.app.set_clock(self._chance.choice(CLOCKS))
        await asyncio.sleep(holds)
        self._machines.app.set_clock(0)

    async def app_killed_while_cut(self, machine: str, holds: float) -> None:
        self._network.link(machine, "down")
        await asyncio.sleep(self._chance.uniform(0, 1))
        self._machines.app.kill()
        await asyncio.sleep(0.2)
        self._machines.app.start()
        await asyncio.sleep(holds)
        self._network.heal(machine)


KINDS: Final = {
    "cut": Kind(Faults.cut, (0.3, 2.5), 5),
    "long cut": Kind(Faults.cut, (4.0, 7.0), 4),
    "cut for good": Kind(Faults.cut, (17.0, 18.0), 1, loses=True),
    "silence": Kind(Faults.silence, (0.5, 2.5), 4),
    "long silence": Kind(Faults.silence, (4.0, 7.0), 4),
    "reset": Kind(Faults.reset, (0.0, 3.0), 5),
    "flap": Kind(Faults.flap, (1.0, 4.0), 4),
    "slow": Kind(Faults.slow, (2.0, 5.0), 4),
    "killed": Kind(Faults.killed, (0.0, 2.0), 4, loses=True),
    "stopped": Kind(Faults.stopped, (0.5, 6.0), 5),
    "clock": Kind(Faults.clock, (1.5, 3.0), 3),
    "full disk": Kind(Faults.full_disk, (1.0, 3.0), 4),
    "app killed": Kind(Faults.app_killed, (0.0, 2.0), 5, on_app=True),
    "app stopped": Kind(Faults.app_stopped, (0.5, 6.0), 4, on_app=True),
    "app clock": Kind(Faults.app_clock, (1.5, 3.0), 2, on_app=True),
    "app killed while cut": Kind(Faults.app_killed_while_cut, (0.5, 5.0), 3, on_app=True),
}


@dataclass(frozen=True)
class Fault:
    name: str
    machine: str
    holds: float

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def __str__(self) -> str:
        return f"{self.name} {self.machine} {self.holds:.1f} s"

    def hits(self, environment: str) -> bool:
        if self.kind.on_app:
            return True
        return environment == self.machine or (environment == POOL and self.machine in DIAL)


def draw(chance: random.Random, only: list[str] | None = None) -> list[Fault]:
    """One, or two at a time on different machines."""
    kinds = {name: kind for name, kind in KINDS.items() if not only or name in only}
    names = chance.sample(NAMES, 2)
    faults: list[Fault] = []
    for machine in names[: 1 + (chance.random() < 0.15)]:
        allowed = {
            name: kind for name, kind in kinds.items() if not (faults and (kind.on_app or faults[0].kind.on_app))
        }
        if allowed:
            name = chance.choices(list(allowed), [kind.weight for kind in allowed.values()])[0]
            faults.append(Fault(name, machine, chance.uniform(*KINDS[name].holds)))
    return faults
