"""`Redaction`: what is shown or exported has no keys in it that this machine knows, or that look like one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from treadle.config import Config
from treadle.config.login import Login
from treadle.config.secret_variables import secret_values, secret_variables
from treadle.config.stored_keys import StoredKeys
from treadle.secrets import LEAST, redact, secrets_in


class Redaction:
    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secret for secret in secrets if len(secret) >= LEAST)

    def json(self, data: bytes | msgspec.Raw) -> Any:
        """The plain values of a JSON text, without secrets. They are looked for in the values, where nothing is
        escaped."""
        return self.clean(msgspec.json.decode(data))

    def clean(self, value: Any) -> Any:
        match value:
            case str():
                return redact(value, self._secrets) if len(value) >= LEAST else value
            case dict():
                return {self.clean(name): self.clean(member) for name, member in value.items()}
            case list():
                return [self.clean(member) for member in value]
        return value


def redaction_for(config: Config, environ: Mapping[str, str]) -> Redaction:
    """By the names in the environment, by what the settings say is a key, and by the logins."""
    kept = (Login(config.home).api_key(), *StoredKeys(config.home).secrets())
    named = (environ.get(name) for name in secret_variables(config.document))
    known = {key for key in (*kept, *named, *secret_values(config.document), *secrets_in(environ)) if key}
    return Redaction(sorted(known, key=len, reverse=True))  # one may be the beginning of another
