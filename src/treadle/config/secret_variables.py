"""`secret_variables`: the environment variables that the configuration names as holding keys.

It knows which keys of `config.toml` name such a variable. Commands never inherit them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

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
