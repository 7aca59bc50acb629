"""What is secret in the configuration: variables that it names as holding keys, and keys that are written in it.

Commands never inherit the variables; the keys are taken out of what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from treadle.secrets import is_secret

_SECTIONS: Final = ("model_providers", "mcp_servers")


def secret_variables(document: Mapping[str, Any]) -> Iterator[str]:
    """Those of every provider and server, used or not, usable or not."""
    for section in _SECTIONS:
        tables = document.get(section)
        for table in tables.values() if isinstance(tables, Mapping) else ():
            if isinstance(table, Mapping):
                headers = table.get("env_http_headers")
                named = [table.get("env_key"), table.get("bearer_token_env_var")]
                named += headers.values() if isinstance(headers, Mapping) else ()
                yield from (name for name in named if isinstance(name, str) and name)


def secret_values(document: Mapping[str, Any]) -> Iterator[str]:
    """What is written under names such as `api_key`, or below `http_headers`. The name of a variable is none."""
    variables = frozenset(secret_variables(document))
    return (value for value in _values(document, "") if value not in variables)


def _values(settings: object, name: str) -> Iterator[str]:
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _values(value, name if is_secret(name) else str(key))
    elif isinstance(settings, str) and is_secret(name, settings):
        yield settings
