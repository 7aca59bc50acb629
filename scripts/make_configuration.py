"""Write the tables of `docs/configuration.md`: every setting, environment variable and file of the home, from the code.

python -m scripts.make_configuration            # write it
python -m scripts.make_configuration --check    # say whether it is up to date

Names, types, defaults and descriptions of settings are those of the structs that parse them: a key that the code reads
and that nobody describes is an error. Environment variables and files have no struct; they are listed here, and
`tests/unit/config/test_configuration_page.py` looks for others in the source.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, Struct
from scripts.page_parts import REPOSITORY, main

from treadle.agent.agent_roles import RoleTable
from treadle.config.environment_settings import Detached, EnvironmentTable
from treadle.config.environment_settings import Seconds as EnvironmentSeconds
from treadle.config.file_settings import (
    IGNORED,
    IGNORED_IN_PROVIDER,
    IGNORED_IN_TABLE,
    SILENT,
    SILENT_IN_PROVIDER,
    FileSettings,
    Text,
    ToolSwitch,
    WebSearchTable,
    allowed,
)
from treadle.config.mcp_settings import ALLOWED as ALLOWED_OF_SERVER
from treadle.config.mcp_settings import McpServerTable, McpToolTable
from treadle.config.model_settings import ALLOWED as ALLOWED_OF_MODEL
from treadle.config.model_settings import ModelTable
from treadle.config.permission_profiles import PermissionTable
from treadle.llm.known_providers import OFFLINE
from treadle.llm.provider import ALLOWED as ALLOWED_OF_PROVIDER
from treadle.llm.provider import ProviderConfig
from treadle.llm.wire_api import wire_api_names

TARGET: Final = REPOSITORY / "docs" / "configuration.md"

# What is chosen where nothing is set, when that is not the value in the struct.
CHOSEN: Final = {"model": "by the provider", "model_provider": "by the keys that are set"}
# Fields of `ProviderConfig` that no table says.
NOT_IN_A_TABLE: Final = frozenset({"id"})

VARIABLES: Final[Mapping[str, str]] = {
    "TREADLE_HOME": "the home, in place of `~/.treadle`",
    "CODEX_HOME": "the home, where `TREADLE_HOME` is not set: share one with Codex",
    "TREADLE_MODEL": "`model`",
    "TREADLE_MODEL_PROVIDER": "`model_provider`",
    "TREADLE_STORE": "`store`",
    "OPENAI_BASE_URL": "`openai_base_url`",
    "OPENAI_API_KEY": "the key of `openai`; where nothing is configured, it also makes that the provider",
    "ANTHROPIC_API_KEY": "the key of `anthropic`; the same, after that of OpenAI",
    "OPENROUTER_API_KEY": "the key of `openrouter`",
    "AZURE_OPENAI_API_KEY": "the key of `azure`",
    "CODEX_API_KEY": "the key of `openai` for one `treadle exec`, before any other",
    "TREADLE_ENGINE": "the engine of `treadle run` when nothing else names one",
    "CODEX_EXEC_SERVER_URL": "the [exec-server](environments.md) on which threads work; `none`: on no machine",
    "TREADLE_SANDBOX": "`bubblewrap` or `landlock`: use that one, or refuse",
    "HTTP_PROXY": "the proxy for `http` URLs of models; `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` as usual",
    "SSL_CERT_FILE": "a PEM file with the certificates of issuers to trust, for a server that is signed by your own",
    "TREADLE_LOG": "what is [logged](logs.md): `debug`, `info`, `warning` or `error`, also for parts of the program",
    "TREADLE_LOG_FORMAT": "`text`, or `json`: one object a line",
    "TREADLE_LOG_FILE": "a file to log to, in place of standard error",
    "TREADLE_LOG_FILES": "how many full ones stay beside it: `FILE.1`, `FILE.2`, …; 1 when it is not set",
    "TREADLE_AUDIT_FILE": "a file for the [audit log](operating.md#audit-log)",
    "TREADLE_AUDIT_FILES": "how many full ones stay beside it; 100 when it is not set",
    "TREADLE_AUDIT_REQUIRED": "`1`: what cannot be written to the audit log is refused",
    "RUST_LOG": "`debug`, `info` or `error`: the log level of `treadle app-server`, as clients of Codex set it",
    "NO_COLOR": "no colours on a terminal",
    "PAGER": "what shows a long thread on a terminal (`treadle threads show`)",
    "TMPDIR": "the temporary directory, which `workspace-write` may write to",
    "TREADLE_WIRE_API": "for tests with `treadle.testing`: the API in which the server asks the mock model",
}
# In the source, and not for users to set: what the server keeps from commands, or gives to its own children.
INTERNAL_VARIABLES: Final = frozenset(
    {
        "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "TREADLE_EXEC_TOKEN",
        "TREADLE_HOST_API_KEY",
    }
)

FILES: Final[Mapping[str, str]] = {
    "config.toml": "the settings on this page",
    "auth.json": "the key of OpenAI that `treadle login` keeps, as Codex keeps it; for your eyes only (0600)",
    "keys.json": "the keys of other providers, the same way",
    "mcp_tokens/": "tokens of MCP servers that `treadle mcp login` has logged in to, a file for each, the same way",
    "threads.db": "threads and their events (SQLite; `threads.db-wal` and `threads.db-shm` belong to it)",
    "run/": "locks of the servers that are running",
    "environments.toml": "[other machines](environments.md), as Codex has them",
    "executors/": "sockets and logs of `treadle exec-server --attach`",
    "environments/": "what is stored of machines that a provider of environments has started",
    "undo/": "copies of files from before they were changed, by which `thread/revert` takes changes back",
    "listeners/": "addresses and secrets of servers that listen on a port",
    "app-server-control/": "the socket of `treadle app-server --listen unix://`",
    "AGENTS.md": "instructions of yours for every project; `AGENTS.override.md` goes before it",
    "skills/": "skills of yours, each a folder with a `SKILL.md`",
    "projects.toml": "the projects of `treadle run --project`",
    "runs/": "`treadle run` and the scheduler: sessions, their locks, jobs that are waiting, last errors",
    "conversations.db": "conversations of `HostAgent(store=True)`",
    "memory/": "what `HostAgent(memory=True)` remembers",
}


class Row(Struct, frozen=True):
    """A line of a table: what can be set, what it may be, what it is otherwise, and what it does."""

    key: str
    allowed: str
    default: str
    meaning: str


def parts() -> dict[str, str]:
    """What is generated, by the name of its place on the page."""
    provider = "model_providers.NAME"
    keys = [f"{table}.{key}" for table, keys in IGNORED_IN_TABLE.items() for key in keys]
    return {
        "settings": _table(setting_rows()),
        "providers": _table(provider_rows()),
        "models": _table(model_rows()),
        "mcp_servers": _table(mcp_server_rows()),
        "environments": _table(environment_rows()),
        "agents": _table(role_rows()),
        "permissions": _table(permission_rows()),
        "ignored": _listed([*IGNORED, *keys, *(f"{provider}.{key}" for key in IGNORED_IN_PROVIDER)]),
        "silent": _listed([*SILENT, *(f"{provider}.{key}" for key in SILENT_IN_PROVIDER)]),
        "variables": _pairs("variable", VARIABLES),
        "files": _pairs("file", FILES),
    }


# --- the tables ------------------------------------------------------------------------------------------------------


def setting_rows() -> Iterator[Row]:
    """All of `FileSettings`; a table has a row for each of its keys."""
    plain = {row.key: row for row in _rows(FileSettings, allowed)}
    for field in msgspec.structs.fields(FileSettings):
        if field.name in plain:
            yield plain[field.name]
        elif field.name == "tools":
            yield from _rows(ToolSwitch, allowed, before="tools.NAME.")
            yield from _rows(WebSearchTable, allowed, before="tools.web_search.")
        else:
            yield from _rows(field.type, allowed, before=f"{field.name}.")


def provider_rows() -> Iterator[Row]:
    words = ", ".join(f"`{word}`" for word in wire_api_names())
    for row in _rows(ProviderConfig, ALLOWED_OF_PROVIDER.__getitem__):
        if row.key == "wire_api":
            yield msgspec.structs.replace(row, allowed=f"{words}, or [your own](wire-apis.md)")
        elif row.key not in NOT_IN_A_TABLE:
            yield row


def model_rows() -> Iterator[Row]:
    return _rows(ModelTable, ALLOWED_OF_MODEL.__getitem__)


def mcp_server_rows() -> Iterator[Row]:
    """All of `McpServerTable`, with the rows of its tables in their places."""
    plain = {row.key: row for row in _rows(McpServerTable, ALLOWED_OF_SERVER.__getitem__)}
    for field in msgspec.structs.fields(McpServerTable):
        if field.name == "tools":
            yield from _rows(McpToolTable, ALLOWED_OF_SERVER.__getitem__, before="tools.TOOL.")
        elif field.name in plain:
            yield plain[field.name]
        else:
            yield from _rows(field.type, ALLOWED_OF_SERVER.__getitem__, before=f"{field.name}.")


def environment_rows() -> Iterator[Row]:
    words: dict[Any, str] = {
        str | None: "a text",
        dict[str, str]: "a table of texts",
        dict[str, Any]: "a table",
        tuple[str, ...]: "a list of texts",
        EnvironmentSeconds: "seconds, up to an hour",
        Detached: "seconds, up to 30 days",
    }
    return _rows(EnvironmentTable, lambda kind: words.get(kind) or allowed(kind))


def role_rows() -> Iterator[Row]:
    words: dict[Any, str] = {
        Text | None: "a text that is not empty",
        tuple[Text, ...]: "a list of texts",
        tuple[Text, ...] | None: "a list of texts",
    }
    return _rows(RoleTable, lambda kind: words.get(kind) or allowed(kind))


def permission_rows() -> Iterator[Row]:
    words: dict[Any, str] = {str | None: "a text", dict[str, bool]: "a table of paths", dict[str, Any]: "a table"}
    return _rows(PermissionTable, words.__getitem__)


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows(struct: type[Struct], allowed_of: Callable[[Any], str], *, before: str = "") -> Iterator[Row]:
    documented = field_docs(struct)
    for field in msgspec.structs.fields(struct):
        is_table = isinstance(field.type, type) and issubclass(field.type, Struct)
        if (
            is_table
            or field.name not in struct.__annotations__  # it is described with the class that it comes from
            or field.name in NOT_IN_A_TABLE
            or (struct in (FileSettings, McpServerTable) and field.name == "tools")
        ):
            continue
        if field.name not in documented:
            raise SystemExit(f"{struct.__name__}.{field.name} has no description below it")
        yield Row(before + field.name, allowed_of(field.type), _default(field), documented[field.name])


def field_docs(struct: type[Struct]) -> dict[str, str]:
    """What is written below each field of a class."""
    [cls] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(cls, ast.ClassDef)
    docs = {}
    for field, below in zip(cls.body, cls.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.name in CHOSEN and field.default == OFFLINE:
        return CHOSEN[field.name]
    value = field.default if field.default_factory is NODEFAULT else field.default_factory()
    if value in (None, NODEFAULT, (), {}, ""):
        return "none"
    return f"`{msgspec.json.encode(value).decode()}`"


def _table(rows: Iterable[Row]) -> str:
    lines = [f"| `{row.key}` | {row.allowed} | {row.default} | {row.meaning} |" for row in rows]
    return "\n".join(["| key | allowed | default | what it does |", "|---|---|---|---|", *lines])


def _pairs(title: str, rows: Mapping[str, str]) -> str:
    return "\n".join(
        [f"| {title} | what it does |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows.items())]
    )


def _listed(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in sorted(names)) + ".", 130, break_on_hyphens=False)


if __name__ == "__main__":
    raise SystemExit(main(TARGET, parts()))
