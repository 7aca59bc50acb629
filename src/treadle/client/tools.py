"""`Tool`: a Python function that the model can call.

It owns the specification of a function for the model (name, description, parameter schema), the validation of
arguments, and the format of results. It does not run calls by itself or talk to a server.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Optional, TypeAlias, get_type_hints

import msgspec

from treadle.arguments import text, wrong_type
from treadle.client.schemas import ShapeError, convert, object_schema
from treadle.errors import ArgumentTypeError, ArgumentValueError
from treadle.protocol.app.item_parts import (
    DynamicToolCallOutputContentItem,
    FunctionDynamicToolSpec,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.tools.specs import WEB_TOOLS, built_in_names

Content: TypeAlias = tuple[DynamicToolCallOutputContentItem, ...]

MAX_TEXT_BYTES: Final = 256 * 1024

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ITEMS: Final = (
    InputTextDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputAudioDynamicToolCallOutputContentItem,
)
_BYTES: Final = (bytes, bytearray, memoryview)
_IMAGES: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)


class ToolCallError(ValueError):
    """A tool was called wrongly, or cannot do what it was asked for; the message is for the model.

    A function may raise it too: then the model gets the message alone, without the name of the exception.
    """


class Tool:
    """A Python function that the model can call.

    The model sees the function's name, its docstring and its parameters with their types and descriptions: from the
    docstring (Google, NumPy or reST style) or from `Annotated[..., msgspec.Meta(description=...)]`. What it sends is
    checked and converted to those types before the function is called. The function may be asynchronous.

    Raises `ArgumentValueError` for a name that cannot be used, and `ArgumentTypeError` for a signature that the model
    cannot call.

    Args:
        function: What is called: a function, plain or async, a method, or an object with `__call__`.
        name: What the model calls it, of letters, digits, `_` and `-`; else the name of the function. It cannot be
            that of a tool which the agent has already, such as `apply_patch`.
        description: The description of the tool for the model; else the docstring of the function.
    """

    __slots__ = ("_required", "_types", "description", "function", "input_schema", "name")

    function: Callable[..., Any]
    """What is called."""
    name: str
    """What the model calls it."""
    description: str
    """The specification of the tool for the model."""
    input_schema: dict[str, Any]
    """The JSON schema of its arguments."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> None:
        if isinstance(function, type) or not callable(function):
            problem = f"{function!r} cannot be a tool: give a function, a method or an object with `__call__`"
            raise ArgumentTypeError("function", problem)
        for parameter, given in (("name", name), ("description", description)):
            if given is not None:
                text(parameter, given)
        self.function = function
        if name is None:
            # Of a partial it is not clear what it does: its function has the name of something more general.
            fallback = None if isinstance(function, partial) else type(function).__name__
            name = getattr(function, "__name__", fallback)
        if name is None:
            raise ArgumentValueError("name", "a partial has no name of its own: give one, as Tool(f, name=...)")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            advice = "give one of 1 to 64 letters, digits, `_` or `-`, as Tool(f, name=...)"
            raise ArgumentValueError("name", f"{name!r} is no name for a tool: {advice}")
        self.name = name
        documented, documented_parameters = read_docstring(_docstring(function))
        self.description = documented if description is None else description
        parameters = _parameters(function, self.name)
        self._types = _types(function, parameters, self.name)
        self._required = tuple(item.name for item in parameters if item.default is item.empty)
        try:
            self.input_schema = object_schema(self._types, self._required)
        except Exception as error:  # of msgspec, of pydantic, or of a class that is looked into
            raise ArgumentTypeError(
                "function", f"the tool `{self.name}` has a parameter that cannot be described: {error}"
            ) from error
        for parameter, schema in self.input_schema["properties"].items():
            # The docstring of the function describes a parameter better than that of a class, an annotation best.
            metas = getattr(self._types[parameter], "__metadata__", ())
            described = any(isinstance(meta, msgspec.Meta) and meta.description for meta in metas)
            if parameter in documented_parameters and not described:
                schema["description"] = documented_parameters[parameter]

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @classmethod
    def of(cls, thing: Callable[..., Any] | Tool) -> Tool:
        """A tool for a function, a method, a callable object or a partial with a `__name__`; a `Tool` as it is."""
        return thing if isinstance(thing, Tool) else cls(thing)

    def spec(self) -> FunctionDynamicToolSpec:
        """The specification that is sent when a thread starts."""
        return FunctionDynamicToolSpec(name=self.name, description=self.description, input_schema=self.input_schema)

    def arguments(self, given: Any) -> dict[str, Any]:
        """What the model sent, as arguments for the function. Raises `ToolCallError`, which names all that is wrong."""
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise ToolCallError(f"`{self.name}` takes an object with its parameters, got {type(given).__name__}")
        problems = [f"there is no parameter `{name}`" for name in given if name not in self._types]
        if problems:
            names = ", ".join(f"`{name}`" for name in self._types)
            problems.append(f"the parameters are {names}" if names else "it takes none")
        found: dict[str, Any] = {}
        for name, type_ in self._types.items():
            if name in given:
                try:
                    found[name] = convert(given[name], type_)
                except ShapeError as error:
                    problems.append(f"`{name}{error.place[1:]}`: {error.problem}")
            elif name in self._required:
                schema = self.input_schema["properties"][name]
                kind = schema.get("type", "a value")
                expected = kind if isinstance(kind, str) else " or ".join(kind)
                about = f" ({schema['description']})" if "description" in schema else ""
                problems.append(f"the parameter `{name}` is missing: expected {expected}{about}")
        if problems:
            raise ToolCallError(f"`{self.name}` was called wrongly: {'; '.join(problems)}")
        return found

    def call(self, given: Any) -> Any:
        """Call the function with what the model sent; an awaitable if the function is asynchronous.

        Raises `ToolCallError`, and whatever the function raises: `failure` has the words for the model.
        """
        return self.function(**self.arguments(given))

    def content(self, value: object) -> Content:
        """What the model gets for a value that the function returned.

        Text as it is, None as an empty text, the bytes of an image (PNG, JPEG, GIF, WebP) as an image, content items as
        they are, and a list of those together; everything else as JSON, or as `str` has it if there is no JSON for it.
        Text above 256 KiB is cut, with a note that says so.
        """
        item = _item(value)
        if item is not None:
            return (item,)
        if isinstance(value, list | tuple) and not all(isinstance(inner, str) for inner in value):
            items = tuple(item for inner in value if (item := _item(inner)) is not None)
            if len(items) == len(value):
                return items
        return (_text("" if value is None else _json(value)),)

    def failure(self, error: Exception) -> Content:
        """What the model gets for an exception: its class and message, or the message of a `ToolCallError`."""
        if isinstance(error, ToolCallError):
            return (_text(str(error)),)
        return (_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__),)


def tools_by_name(things: Iterable[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """Tools under the names that the model calls them by; raises `ArgumentError` for those that cannot be used."""
    if callable(things) or isinstance(things, Tool):
        raise wrong_type("tools", "a list of functions", things, ": pass tools=[…]")
    if isinstance(things, str | Mapping) or not isinstance(things, Iterable):
        raise wrong_type("tools", "a list of functions", things)
    found: dict[str, Tool] = {}
    for thing in things:
        tool = Tool.of(thing)
        if tool.name in built_in_names() - WEB_TOOLS:
            raise _bad_name(f"`{tool.name}` is a tool that the agent has already")
        if tool.name in found:
            raise _bad_name(f"two tools are called `{tool.name}`")
        found[tool.name] = tool
    return found


def _bad_name(problem: str) -> ArgumentValueError:
    return ArgumentValueError("tools", f"{problem}: give yours another name, as Tool(f, name=...)")


# --- functions -------------------------------------------------------------------------------------------------------


def _implementation(function: Callable[..., Any]) -> Any:
    """The function whose docstring and annotations count."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else inspect.unwrap(type(function).__call__)


def _docstring(function: Callable[..., Any]) -> str:
    implementation = _implementation(function)
    if inspect.isroutine(function) or isinstance(function, partial):
        return inspect.getdoc(implementation) or ""
    # An object may say at its class what calling it does; `getdoc` would find Python's own words about calls first.
    return inspect.cleandoc(implementation.__doc__ or "") or inspect.getdoc(type(function)) or ""


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """The parameters that the model may give."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ArgumentTypeError(
            "function", f"the tool `{name}` is a generator: make it return one value, such as a list"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            "function", f"the tool `{name}` has no signature that Python knows: wrap it in a function"
        ) from None
    bound = function.keywords if isinstance(function, partial) else {}
    found = []
    for item in parameters:
        if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
            stars = "*" if item.kind is item.VAR_POSITIONAL else "**"
            raise ArgumentTypeError(
                "function", f"the tool `{name}` takes {stars}{item.name}, which has no schema: name its parameters"
            )
        if item.kind is item.POSITIONAL_ONLY and item.default is item.empty:
            raise ArgumentTypeError(
                "function", f"`{item.name}` of the tool `{name}` is positional-only: tools are called with keywords"
            )
        # What a partial has set is not for the model to see or to change.
        if item.kind is not item.POSITIONAL_ONLY and item.name not in bound:
            found.append(item)
    return found


def _types(function: Callable[..., Any], parameters: list[inspect.Parameter], name: str) -> dict[str, Any]:
    implementation = _implementation(function)
    annotated = {item.name: item.annotation for item in parameters if item.annotation is not item.empty}
    try:
        # Only these: what the function returns may well be known to a type checker alone.
        hints = get_type_hints(
            SimpleNamespace(__annotations__=annotated), getattr(implementation, "__globals__", {}), include_extras=True
        )
    except (NameError, SyntaxError, TypeError) as error:
        raise ArgumentTypeError(
            "function",
            f"an annotation of the tool `{name}` cannot be resolved ({error}): define the type at module level",
        ) from error
    found = {}
    for item in parameters:
        hint = hints.get(item.name, Any)
        found[item.name] = Optional[hint] if item.default is None and hint is not Any else hint  # noqa: UP045
    return found


# --- docstrings: Google, NumPy and reST style -------------------------------------------------------------------------

_GOOGLE: Final = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s):\s*")
_OTHER: Final = re.compile(r"(?:Returns?|Yields?|Raises|Examples?|Attributes|See Also|Warns|References):\s*")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_FIELD: Final = re.compile(r":(?:param(?:eter)?|arg(?:ument)?)\s+(?:[^:]*\s)?(?P<name>\w+)\s*:\s*(?P<text>.*)")
_OTHER_FIELD: Final = re.compile(r":(?:type|returns?|rtype|raises?|yields?|var|ivar|cvar)\b[^:]*:.*")
_GOOGLE_ENTRY: Final = re.compile(r"(?P<name>\w+)\s*(?:\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY: Final = re.compile(r"(?P<name>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, which ends where the first section begins, and that of each parameter."""
    lines = text.split("\n")
    below = [*lines[1:], ""]
    patterns = (_GOOGLE, _OTHER, _FIELD, _OTHER_FIELD)
    first = next(
        (
            at
            for at, line in enumerate(lines)
            if any(pattern.fullmatch(line) for pattern in patterns) or (line and _UNDERLINE.fullmatch(below[at]))
        ),
        len(lines),
    )
    entries: dict[str, list[str]] = {}
    for at in range(first, len(lines)):
        line = lines[at]
        if (field := _FIELD.fullmatch(line)) is not None:
            entries[field["name"]] = [field["text"], *_block(lines, at + 1)]
        elif _UNDERLINE.fullmatch(line) and lines[at - 1].strip() in ("Parameters", "Other Parameters"):
            _numpy_entries(lines, at + 1, entries)
        elif _GOOGLE.fullmatch(line):
            _google_entries(_block(lines, at + 1), entries)
    description = "\n".join(lines[:first]).strip()
    return description, {name: " ".join(" ".join(words).split()) for name, words in entries.items() if any(words)}


def _block(lines: list[str], at: int) -> list[str]:
    """The indented lines from here on."""
    found = []
    for line in lines[at:]:
        if line and not line.startswith((" ", "\t")):
            break
        found.append(line)
    return found


def _google_entries(block: list[str], entries: dict[str, list[str]]) -> None:
    indents = [len(line) - len(line.lstrip()) for line in block if line.strip()]
    name = None
    for line in block:
        entry = _GOOGLE_ENTRY.fullmatch(line.strip())
        if entry is not None and len(line) - len(line.lstrip()) == min(indents):
            name = entry["name"]
            entries[name] = [entry["text"]]
        elif name is not None:
            entries[name].append(line)


def _numpy_entries(lines: list[str], at: int, entries: dict[str, list[str]]) -> None:
    while at < len(lines):
        if _UNDERLINE.fullmatch(lines[at + 1] if at + 1 < len(lines) else ""):
            return
        entry = _NUMPY_ENTRY.fullmatch(lines[at].strip())
        block = _block(lines, at + 1)
        if entry is not None:
            for name in re.split(r"\s*,\s*", entry["name"]):
                entries[name] = block
        at += 1 + len(block)


# --- results ---------------------------------------------------------------------------------------------------------


def _item(value: object) -> DynamicToolCallOutputContentItem | None:
    """The content item that a value is without any doubt."""
    if isinstance(value, _ITEMS):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, _BYTES):
        data = bytes(value)
        for start, media_type in _IMAGES:
            if start.match(data):
                from pybase64 import b64encode  # only for images

                url = f"data:{media_type};base64,{b64encode(data).decode()}"
                return InputImageDynamicToolCallOutputContentItem(image_url=url)
    return None


def _text(text: str) -> InputTextDynamicToolCallOutputContentItem:
    # Half a character has no UTF-8 and could not be sent.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_TEXT_BYTES:
        kept = data[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
        missing = len(data) - len(kept.encode())
        return InputTextDynamicToolCallOutputContentItem(
            text=f"{kept}\n[cut here: {missing} of {len(data)} bytes are missing]"
        )
    return InputTextDynamicToolCallOutputContentItem(text=data.decode())


def _json(value: object) -> str:
    def plain(inner: object) -> object:
        dump = getattr(inner, "model_dump_json", None)
        if callable(dump):
            return msgspec.Raw(dump().encode())
        if inner is value:
            raise TypeError
        return str(inner)

    try:
        return msgspec.json.encode(value, enc_hook=plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return str(value)
