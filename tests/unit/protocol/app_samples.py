"""Instances of every struct of the app-server protocol: the smallest, the fullest, and each choice of each member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct, inspect

from treadle.protocol.app import (
    METHODS,
    NOTIFICATIONS,
    SERVER_REQUESTS,
    ExternalAgentConfigDetectResponse,
    FileSystemSpecialPath,
    GetAccountRateLimitsResponse,
    HookMetadata,
    ImageGenerationThreadItem,
    ImageUserInput,
    InputImageFunctionCallOutputContentItem,
    McpServerElicitationRequestParams,
    PluginInstalledResponse,
    PluginListParams,
    PluginListResponse,
    RateLimitSnapshot,
    ResourceContent,
)
from treadle.protocol.app.base import _Union

_FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
_HOOK: dict[str, Any] = {
    "current_hash": "h",
    "display_order": 1,
    "enabled": True,
    "event_name": "stop",
    "is_managed": False,
    "key": "k",
    "source": "user",
    "source_path": "/hooks",
    "timeout_sec": 5,
    "trust_status": "trusted",
}
_MARKETPLACE: dict[str, Any] = {"name": "m", "path": "/m", "plugins": []}
_ERROR: dict[str, Any] = {"marketplacePath": "/m", "message": "cannot be read"}
_FOUND: dict[str, Any] = {"cwd": "/w", "description": "d", "itemType": "CONFIG"}
_ELICITATION: dict[str, Any] = {"thread_id": "t", "server_name": "s", "message": "m"}

BY_HAND: Mapping[type[Struct], tuple[Struct, ...]] = {
    ImageUserInput: (ImageUserInput(url="data:,"), ImageUserInput(file_id="f", detail="low")),
    InputImageFunctionCallOutputContentItem: (
        InputImageFunctionCallOutputContentItem(image_url="data:,"),
        InputImageFunctionCallOutputContentItem(file_id="f", detail="high"),
    ),
    ImageGenerationThreadItem: (
        ImageGenerationThreadItem(id="i", status="completed", result="r"),
        ImageGenerationThreadItem(id="i", status="completed", file_id="f", saved_path="/p", revised_prompt="p"),
    ),
    ResourceContent: (ResourceContent(uri="u", text="t"), ResourceContent(uri="u", blob="eA==", mime_type="a/b")),
    HookMetadata: (
        HookMetadata(**_HOOK, handler_type="command", command="true", async_=True),
        HookMetadata(**_HOOK, handler_type="mcpTool", server="s", tool="t"),
        HookMetadata(**_HOOK, handler_type="prompt"),
    ),
    McpServerElicitationRequestParams: (
        McpServerElicitationRequestParams(**_ELICITATION, mode="form", requested_schema=_FORM),
        McpServerElicitationRequestParams(**_ELICITATION, mode="url", url="http://x", elicitation_id="e", turn_id="t"),
    ),
    GetAccountRateLimitsResponse: (
        GetAccountRateLimitsResponse(rate_limits=RateLimitSnapshot()),
        GetAccountRateLimitsResponse(
            rate_limits=RateLimitSnapshot(limit_id="codex"),
            account_id="a",
            ordinary_usage_allowed=True,
            rate_limit_reset_credits={"availableCount": 1},
            rate_limit_upsell={"banner": "b"},
            rate_limits_by_limit_id={"codex": RateLimitSnapshot()},
        ),
    ),
    PluginListParams: (PluginListParams(), PluginListParams(cwds=("/w",), marketplace_kinds=("local",))),
    PluginListResponse: (
        PluginListResponse(marketplaces=()),
        PluginListResponse(marketplaces=(_MARKETPLACE,), featured_plugin_ids=("p",), marketplace_load_errors=(_ERROR,)),
    ),
    PluginInstalledResponse: (
        PluginInstalledResponse(marketplaces=()),
        PluginInstalledResponse(marketplaces=(_MARKETPLACE,), marketplace_load_errors=(_ERROR,)),
    ),
    ExternalAgentConfigDetectResponse: (
        ExternalAgentConfigDetectResponse(items=()),
        ExternalAgentConfigDetectResponse(items=(_FOUND,)),
    ),
    FileSystemSpecialPath: (
        FileSystemSpecialPath(kind="root"),
        FileSystemSpecialPath(kind="project_roots", subpath="s"),
        FileSystemSpecialPath(kind="unknown", path="p"),
    ),
}
"""Where one member decides which others are there."""


@cache
def structs() -> tuple[type[Struct], ...]:
    """Every struct that can be reached from the registry, once."""
    methods = chain(METHODS.values(), SERVER_REQUESTS.values())
    roots = [*chain.from_iterable((method.params, method.result) for method in methods), *NOTIFICATIONS.values()]
    found: dict[type[Struct], None] = {}
    for root in roots:
        _collect(inspect.type_info(root), found)
    return tuple(found)


def _collect(info: inspect.Type, found: dict[type[Struct], None]) -> None:
    match info:
        case inspect.StructType(cls=cls):
            if cls not in found:
                found[cls] = None
                for field in info.fields:
                    _collect(field.type, found)
        case inspect.CustomType(cls=_Union() as union):
            for member in (*union.tags.values(), *union.keys.values()):
                _collect(inspect.type_info(member), found)
        case inspect.UnionType(types=types):
            for each in types:
                _collect(each, found)
        case inspect.VarTupleType(item_type=item) | inspect.Metadata(type=item):
            _collect(item, found)
        case inspect.DictType(value_type=item):
            _collect(item, found)


@cache
def samples(struct: type[Struct]) -> tuple[Struct, ...]:
    if struct in BY_HAND:
        return BY_HAND[struct]
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    choices = {field.name: list(_values(field.type)) for field in info.fields}
    least = struct(**{field.name: choices[field.name][0] for field in info.fields if field.required})
    full = struct(**{name: values[0] for name, values in choices.items()})
    each = (msgspec.structs.replace(full, **{name: value}) for name, values in choices.items() for value in values[1:])
    return (least, full, *each)


def _fullest(struct: type[Struct]) -> Iterator[Struct]:
    made = samples(struct)
    return iter(made if struct in BY_HAND else made[1:2])


def _values(info: inspect.Type) -> Iterator[Any]:
    match info:
        case inspect.StructType(cls=cls):
            yield from _fullest(cls)
        case inspect.CustomType(cls=_Union() as union):
            for member in (*union.tags.values(), *union.keys.values()):
                yield from _fullest(member)
            yield from sorted(union.words)
        case inspect.UnionType(types=types):
            nothing = [each for each in types if isinstance(each, inspect.NoneType)]
            for each in types:
                if each not in nothing:
                    yield from _values(each)
            yield from [None] * len(nothing)
        case inspect.VarTupleType(item_type=item):
            yield tuple(_values(item))
            yield ()
        case inspect.DictType(value_type=item):
            yield {f"k{number}": value for number, value in enumerate(_values(item))}
            yield {}
        case inspect.Metadata(type=item, extra=extra):
            yield from (extra or {}).get("words") or _values(item)
        case inspect.LiteralType(values=words):
            yield from words
        case inspect.EnumType(cls=words):
            yield from words
        case _:
            yield _SCALARS[type(info)]


_SCALARS: Mapping[type[inspect.Type], Any] = {
    inspect.StrType: "text",
    inspect.IntType: 1,
    inspect.FloatType: 0.5,
    inspect.BoolType: True,
    inspect.AnyType: {"any": [1]},
}
