"""`EngineRuntime`: turns on any engine that a runner can drive: claude, opencode, pi, codex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.host.asking import AskPerson
from treadle.host.runtime import Opened, Opening, RuntimeEvent, UserInput
from treadle.runners.runner import Runner


class EngineRuntime:
    def __init__(self, engine: str | Runner, **choices: Any) -> None:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        raise NotImplementedError

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        raise NotImplementedError

    async def next_event(self) -> RuntimeEvent:
        raise NotImplementedError

    async def interrupt(self) -> None:
        raise NotImplementedError

    async def steer(self, text: str) -> bool:
        raise NotImplementedError

    async def probe(self) -> None:
        raise NotImplementedError

    async def compact(self) -> bool:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
