"""`LocalRuntime`: our own loop in this process, straight on a provider, with the host's tools alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from treadle.host.asking import AskPerson
from treadle.host.runtime import Opened, Opening, RuntimeEvent, UserInput

LocalWire: TypeAlias = Literal["responses", "chat_completions", "anthropic"]


class LocalRuntime:
    def __init__(
        self,
        wire: LocalWire = "responses",
        *,
        provider: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        model: str | None = None,
        max_iterations: int | None = None,
    ) -> None:
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
