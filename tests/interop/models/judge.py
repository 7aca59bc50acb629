"""The official clients at work, in an interpreter that has them: `python -m interop.models.judge openai|anthropic`.

Reads questions as lines of JSON and answers each with one. `body`: what the client's own types say against the body of
a request. `ask`: what its own parser understands when it sends such a body to a server. The parent side is `official`.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

Json = dict[str, Any]


def main() -> None:
    judge = {"openai": OPENAI, "anthropic": ANTHROPIC}[sys.argv[1]]
    adapters = _adapters(judge)
    for line in sys.stdin:
        question = json.loads(line)
        if question["do"] == "body":
            answer: object = _problems(adapters[question["api"]], question["body"])
        else:
            answer = _asked(judge, question)
        print(json.dumps(answer), flush=True)


# --- types -----------------------------------------------------------------------------------------------------------


def _adapters(judge: Judge) -> dict[str, Any]:
    type_adapter = import_module("pydantic").TypeAdapter

    # Pydantic looks into an `Iterable` only when it is read, and so would find nothing wrong in it.
    lazy = typing.Iterable
    typing.Iterable = typing.List  # type: ignore[misc]  # noqa: UP006
    try:
        types = {api: find() for api, find in judge.types.items()}
    finally:
        typing.Iterable = lazy  # type: ignore[misc]
    _forbid_strangers()
    return {api: type_adapter(wanted) for api, wanted in types.items()}


def _forbid_strangers() -> None:
    """Tell every TypedDict of the package that members which it does not have are wrong."""
    from typing_extensions import is_typeddict

    for name, module in list(sys.modules.items()):
        if name.startswith(("openai.types", "anthropic.types")):
            for value in vars(module).values():
                if is_typeddict(value):
                    value.__pydantic_config__ = {"extra": "forbid", "arbitrary_types_allowed": True}


def _problems(adapter: Any, body: Json) -> list[str]:
    """At most a few: where a union does not fit, each of its thirty members says why."""
    try:
        adapter.validate_python(body)
    except import_module("pydantic").ValidationError as error:
        problems = [(_place(problem["loc"]), problem["msg"]) for problem in error.errors()]
        return [f"{place}: {why}" for place, why in problems][:40]
    return []


def _place(steps: tuple[int | str, ...]) -> str:
    return ".".join(str(step) for step in steps if "[" not in str(step))


# --- streams ---------------------------------------------------------------------------------------------------------


def _asked(judge: Judge, question: Json) -> Json:
    """Two readings: every event of the plain stream, and what the client's own accumulation makes of all of them."""
    body = {name: value for name, value in question["body"].items() if name != "stream"}
    client = judge.client(question["base_url"])
    with client:
        events = [event.to_dict() for event in judge.events[question["api"]](client, body)]
        return {"events": [_kind(event) for event in events], **judge.whole[question["api"]](client, body)}


def _kind(event: Json) -> str:
    return str(event.get("type") or event.get("object"))


def _openai_client(base_url: str) -> Any:
    return import_module("openai").OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=30)


def _responses_whole(client: Any, body: Json) -> Json:
    with client.responses.stream(**body) as stream:
        for _ in stream:
            pass
        response = stream.get_final_response()
    items = response.output
    calls = [item for item in items if item.type in ("function_call", "custom_tool_call")]
    usage = response.usage
    return {
        "text": response.output_text,
        "thought": "".join(part.text for item in items if item.type == "reasoning" for part in item.summary),
        "calls": [
            [call.call_id, call.name, call.arguments if call.type == "function_call" else call.input] for call in calls
        ],
        "usage": [usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens],
    }


def _chat_whole(client: Any, body: Json) -> Json:
    with client.chat.completions.stream(**body) as stream:
        for _ in stream:
            pass
        completion = stream.get_final_completion()
    message, usage = completion.choices[0].message, completion.usage
    calls = message.tool_calls or []
    return {
        "text": message.content or "",
        "thought": (message.model_extra or {}).get("reasoning_content") or "",
        "calls": [[call.id, call.function.name, call.function.arguments] for call in calls],
        "usage": [usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens],
    }


def _anthropic_client(base_url: str) -> Any:
    root = base_url.removesuffix("/v1")
    return import_module("anthropic").Anthropic(base_url=root, api_key="none", max_retries=0, timeout=30)


def _anthropic_whole(client: Any, body: Json) -> Json:
    with client.messages.stream(**body) as stream:
        for _ in stream:
            pass
        message = stream.get_final_message()
    usage, blocks = message.usage, message.content
    return {
        "text": "".join(block.text for block in blocks if block.type == "text"),
        "thought": "".join(block.thinking for block in blocks if block.type == "thinking"),
        "calls": [[block.id, block.name, json.dumps(block.input)] for block in blocks if block.type == "tool_use"],
        "usage": [
            usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
        ],
    }


class Judge(typing.NamedTuple):
    client: Callable[[str], Any]
    types: dict[str, Callable[[], Any]]
    events: dict[str, Callable[[Any, Json], Iterator[Any]]]
    whole: dict[str, Callable[[Any, Json], Json]]


def _type(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(module), name)


OPENAI = Judge(
    _openai_client,
    {
        "responses": _type("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
        "chat": _type("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
    },
    {
        "responses": lambda client, body: client.responses.create(**body, stream=True),
        "chat": lambda client, body: client.chat.completions.create(**body, stream=True),
    },
    {"responses": _responses_whole, "chat": _chat_whole},
)
ANTHROPIC = Judge(
    _anthropic_client,
    {"anthropic": _type("anthropic.types.message_create_params", "MessageCreateParamsStreaming")},
    {"anthropic": lambda client, body: client.messages.create(**body, stream=True)},
    {"anthropic": _anthropic_whole},
)

if __name__ == "__main__":
    main()
