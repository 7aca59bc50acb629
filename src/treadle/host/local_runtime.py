"""`LocalRuntime`: turns in this process, directly on a provider, with only the tools of the host.

It is `AppServerRuntime` on Treadle's own server in this process: an ephemeral thread without an environment and without
the server's tools, so there are no commands and no files. A thread lives as long as its runtime.

`local_settings` decides which provider and which model are asked, by the configuration and what was passed to the
runtime. Names of wire APIs are those of the registry (`treadle.llm.wire_api_names`), added ones included.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.thread.model_history import repaired
from treadle.agent.turn.pending_input import model_items
from treadle.arguments import count, one_of
from treadle.arguments import limit as seconds_or_none
from treadle.client.codex_config import CodexConfig
from treadle.client.lifecycle import async_retry_on_overload
from treadle.client.provider_settings import KEY_VARIABLE
from treadle.config import Config, ConfigError, find_home, load_config, model_facts
from treadle.errors import ArgumentError
from treadle.execution.project_files import ProjectFiles
from treadle.host.app_server.host_client import login_advice
from treadle.host.app_server.runtime import AppServerRuntime
from treadle.host.approver import AskPerson
from treadle.host.chat_messages import text_of
from treadle.host.faults import Fault, ResumeFailed, RuntimeFault
from treadle.host.runtime import ItemCompleted, ItemStarted, Message, Opened, Opening, RuntimeEvent, SignOfLife
from treadle.host.runtime_choice import is_local_name, local_names, wire_api_of
from treadle.host.timeouts import TOOL_S
from treadle.llm.known_providers import KNOWN, OFFLINE, OPENAI, default_model
from treadle.protocol.app.item_parts import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput
from treadle.protocol.app.settings import CollaborationMode
from treadle.protocol.app.settings import Settings as ModeSettings
from treadle.protocol.app.thread_methods import ThreadStartParams
from treadle.tools.specs import built_in_names

if TYPE_CHECKING:
    from treadle.client.turn_values import Input
    from treadle.protocol.app.turns import TurnStartParams

LocalWire: TypeAlias = str
"""The name of a wire API."""
_BYTES_PER_TOKEN: Final = 4


class LocalSettings(Struct, frozen=True):
    """What a thread is asked with: `overrides` are for the thread's `config`, `config` is all of it."""

    provider: str
    model: str
    overrides: dict[str, Any]
    config: Config


def local_settings(
    wire_api: str, *, provider: str | None, model: str | None, base_url: str | None, has_key: bool
) -> LocalSettings:
    """The provider and the model of a thread. Raises `ConfigError` when there is none that can be used.

    Args:
        wire_api: The API that the model is asked in, whatever the configuration says.
        provider: The provider that was named, if one was.
        model: The model that was named, if one was.
        base_url: Where the provider's server is, in place of the configured address.
        has_key: Whether the key is in the variable `KEY_VARIABLE` of the server, in place of the configured one.
    """
    config = load_config(find_home(os.environ)).config
    # A provider that is called like the API is its usual one.
    usual = wire_api if wire_api in KNOWN else OPENAI
    if provider is None and (has_key or base_url is not None):
        provider = usual
    elif provider is None:
        provider = config.model_choice(model, None).provider
        configured = config.providers.get(provider)
        if usual == wire_api and (configured is None or configured.wire_api != wire_api):
            provider = usual
    if model is None:
        # The model of the configuration is meant for the provider of the configuration.
        chosen = config.chosen
        model = chosen.model if chosen.provider == provider else default_model(provider)
    overrides: dict[str, Any] = {
        "model_provider": provider,
        "tools": dict.fromkeys(sorted(built_in_names()), False),
        "features": {"multi_agent": False},
    }
    if model is not None:
        overrides["model"] = model
    if provider != OFFLINE and (provider in config.providers or base_url is not None):
        table = {"wire_api": wire_api, "base_url": base_url, "env_key": KEY_VARIABLE if has_key else None}
        table["name"] = None if provider in config.providers else provider
        overrides["model_providers"] = {provider: {key: value for key, value in table.items() if value is not None}}
    config = config.with_thread_overrides(overrides)
    return LocalSettings(provider, config.model, overrides, config)


class LocalRuntime(AppServerRuntime):
    """Runs turns in this process.

    Args:
        wire: The API that the model is asked in.
        provider: The provider, by its id in the configuration or among those that are built in; `offline` needs no key
            and no network. Without it the configuration decides.
        api_key: A key for it, in place of the one of the environment or of the login.
        base_url: Where its server is, in place of the configured one.
        model: The model, for threads that name none.
        max_iterations: How many rounds of tool calls a turn may have. After that the model is asked once more, without
            tools, so that the turn ends with an answer. None has no limit.
        tool_timeout: Seconds that one call of a tool may take; None has no limit.
    """

    _EPHEMERAL = True
    _OPTIONS = AppServerRuntime._OPTIONS | {"max_output_tokens"}
    # The server looks for the key before every request, so a login that was mended is found.
    _REPLACED = AppServerRuntime._REPLACED - {"auth"}

    def __init__(
        self,
        wire: LocalWire = "responses",
        *,
        provider: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        model: str | None = None,
        max_iterations: int | None = None,
        tool_timeout: float | None = TOOL_S,
    ) -> None:
        if not isinstance(wire, str) or not is_local_name(wire):
            one_of("wire", wire, local_names())
        if max_iterations is not None:
            count("max_iterations", max_iterations)
        super().__init__(
            CodexConfig(env={KEY_VARIABLE: api_key} if api_key else None), tool_timeout=seconds_or_none(tool_timeout)
        )
        self._wire = wire
        self._has_key = bool(api_key)
        self._provider, self._base_url, self._model = provider, base_url, model
        self._max_iterations = max_iterations
        self._opened: Opened | None = None
        self._settings: LocalSettings | None = None
        self._echoed = False  # whether the message that the turn began with has been reported

    def __repr__(self) -> str:
        return f"<LocalRuntime {self.name}>"

    @property
    def name(self) -> str:
        """The API that the model is asked in."""
        return self._wire

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Make a thread. Nothing is sent to the provider, and nobody is asked: the tools are the host's own."""
        if opening.resume is None or self._dead is not None:
            try:
                self._opened = await super().open(opening, ask)
            except ArgumentError as error:
                raise RuntimeFault(Fault(kind="refused", message=str(error))) from None
        elif self._opened is None or self._opened.thread_id != opening.resume:
            missing = f"there is no thread `{opening.resume}` here: it lived in the process that made it"
            raise ResumeFailed(Fault(kind="refused", message=missing))
        return structs.replace(self._opened, usage=self._usage)

    async def _start(self, opening: Opening, members: Mapping[str, Any]) -> Opened:
        try:
            chosen = self._settings = local_settings(
                wire_api_of(self._wire),
                provider=self._provider,
                model=opening.model or self._model,
                base_url=self._base_url,
                has_key=self._has_key,
            )
        except (ConfigError, ArgumentError) as error:
            raise RuntimeFault(Fault(kind="startup", message=str(error))) from None
        self._login = login_advice(None, provider=chosen.provider, has_key=self._has_key)
        params = ThreadStartParams(
            ephemeral=True,
            environments=(),
            model=chosen.model,
            model_provider=chosen.provider,
            config=chosen.overrides,
            cwd=members["cwd"],
            sandbox="read-only",
            base_instructions="",
            developer_instructions=opening.instructions,
            personality="none",
            dynamic_tools=tuple(tool.spec() for tool in opening.tools) or None,
        )
        answer = await async_retry_on_overload(lambda: self._client.thread_start(params))
        # Half of the window, so that there is room for the turns to come: what does not fit could not be summed up.
        fits = model_facts(chosen.model, chosen.config).context_window * _BYTES_PER_TOKEN // 2
        history = await history_items(recent(opening.history, fits), answer.cwd)
        if history:
            items = [msgspec.json.decode(item) for item in history]
            await self._client.thread_inject_items({"threadId": answer.thread.id, "items": items})
        return Opened(thread_id=answer.thread.id, model=answer.model)

    def _read(self, turn_id: str) -> None:
        super()._read(turn_id)
        self._echoed = False

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn. The message that the turn began with is not among its items."""
        event = await super().next_event()
        if not self._echoed and isinstance(event, ItemStarted | ItemCompleted) and event.item.type == "userMessage":
            self._echoed = isinstance(event, ItemCompleted)
            return SignOfLife()
        return event

    def _turn_params(self, said: Input, given: dict[str, Any]) -> TurnStartParams:
        """Options are for one turn, and settings of a thread stay: so each turn names its model, effort and summary."""
        assert self._settings is not None
        config, tokens = self._settings.config, given.pop("max_output_tokens", None)
        if tokens is not None:
            count("max_output_tokens", tokens)
        params = super()._turn_params(said, given)
        # Only a mode can take an effort away again.
        chosen = ModeSettings(
            model=params.model or self._settings.model, reasoning_effort=params.effort or config.model_reasoning_effort
        )
        return structs.replace(
            params,
            collaboration_mode=CollaborationMode(mode="default", settings=chosen),
            summary=params.summary or config.model_reasoning_summary or "auto",
            max_iterations=self._max_iterations,
            max_output_tokens=tokens,
        )


# --- history ---------------------------------------------------------------------------------------------------------

LEFT_OUT: Final = "[earlier messages of this conversation are left out]"


def recent(history: Sequence[Message], max_bytes: int) -> Sequence[Message]:
    """The end of a conversation, from something that the user said on: all of it if it is not too long.

    Args:
        history: The conversation.
        max_bytes: How much of it a model can be given.
    """
    left, first = max_bytes, len(history)
    while first and (left := left - len(msgspec.json.encode(history[first - 1]))) >= 0:
        first -= 1
    if first == 0:
        return history
    turns = (index for index in range(first, len(history)) if history[index].get("role") == "user")
    return [{"role": "developer", "content": LEFT_OUT}, *history[next(turns, first) :]]


async def history_items(history: Iterable[Message], cwd: str) -> list[Raw]:
    """What was said before, as items of the Responses API, whichever wire API carries them: every call with its output,
    and no output without its call. What has no equivalent is described in words, so that the model knows of it."""
    items: list[object] = []
    answered: set[str] = set()
    for message in history:
        content, call_id = message.get("content"), message.get("tool_call_id")
        match message.get("role"):
            case "tool":
                if isinstance(call_id, str) and call_id not in answered:
                    answered.add(call_id)
                    items.append({"type": "function_call_output", "call_id": call_id, "output": text_of(message)})
            case "assistant":
                if text := text_of(message):
                    items.append(_message("assistant", "output_text", text))
                items += _function_calls(message)
            case "user":
                parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                known = map(_input_part, parts if isinstance(parts, list | tuple) else ())
                items += await model_items(list(known), [ProjectFiles(cwd, None)])
            case "system" | "developer":
                items.append(_message("developer", "input_text", text_of(message)))
    return repaired([Raw(msgspec.json.encode(item)) for item in items])


def _message(role: str, kind: str, text: str) -> object:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _function_calls(message: Message) -> Iterator[object]:
    for call in message.get("tool_calls") or ():
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": arguments}}:
                given = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": given or "{}"}


def _input_part(part: Any) -> UserInput:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextUserInput(text=text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImageUserInput(url=url)
        case {"type": "local_image", "path": path}:
            return LocalImageUserInput(path=str(path))
    return TextUserInput(text="[something was attached that cannot be shown any more]")
