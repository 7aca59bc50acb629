"""Secrets: which names and values must not be shown, and how to redact them. Pure, but for `KNOWN`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "…"
_NAME: Final = re.compile(r"key|secret|token|passw|pwd|credential|auth|cookie|header|query_param", re.IGNORECASE)
_KEY: Final = re.compile(r"\b(?:sk|pk|ghp|gho|ghs|xox[abps]|glpat)[-_][A-Za-z0-9_-]{8,}")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SECRET_PATH: Final = re.compile(r"(?<=[^/:])/[\w-]{32,}/?$")
_WORDS: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\s\"'={},\[\]]+)")
_DIRECTORIES: Final = frozenset({"PWD", "OLDPWD"})
"""Every shell sets them, and they are no passwords."""
LEAST: Final = 8
"""Shorter values are words that occur elsewhere."""
KNOWN: Final[set[str]] = set()
"""Values that this process has used as keys, wherever it found them; `learn` adds to it."""
_MAX_KNOWN: Final = 1024


def is_secret(name: str, value: str = "") -> bool:
    """Whether something of this name, or a value of this shape, had better not be shown."""
    return _NAME.search(name) is not None or _KEY.search(value) is not None or _BEARER.search(value) is not None


def hides_secret(text: str) -> bool:
    """Whether a setting or an argument has a secret in it, however deep."""
    return is_secret(text, text)


def shown_setting(text: str) -> str:
    """`name=value` as it may be shown."""
    name, equals, _ = text.partition("=")
    return f"{name}={HIDDEN}" if equals and hides_secret(text) else text


def shown_argument(text: str) -> str:
    """A word of a command line as it may be shown."""
    return shown_setting(text) if "=" in text else redact(text, [])


def kept_url(url: str) -> str:
    """A URL without a path that looks like the secret of a server."""
    return url if url.startswith("unix:") else _SECRET_PATH.sub("", url)


def secrets_in(environment: Mapping[str, str], settings: Iterable[str] = ()) -> list[str]:
    """Values that must not be shown, longest first."""
    named = ((name, value) for name, value in environment.items() if name not in _DIRECTORIES)
    values = {value for name, value in named if is_secret(name, value)}
    for text in settings:
        if hides_secret(text):
            values |= {word for found in _WORDS.findall(text.partition("=")[2]) for word in found}
    return sorted((value for value in values if len(value) >= LEAST), key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without these values, and without what has the shape of a key."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return _BEARER.sub(r"\1 [redacted]", _KEY.sub("[redacted]", text))


def plain(text: str, secrets: Iterable[str]) -> str:
    """What a program wrote, as it may be shown: without these values, colours and control characters. To be cut after
    it: half a secret would not be known as one."""
    return redact(_CONTROL.sub("", _ESCAPE.sub("", text)), secrets)


def learn(values: Iterable[str]) -> None:
    """Remember values that logs must not show. Whoever logs in with a new key a thousand times loses the first ones.
    A value of a few letters is no key, and taking it out would make every line unreadable."""
    if len(KNOWN) >= _MAX_KNOWN:
        KNOWN.clear()
    KNOWN.update(value for value in values if len(value) >= LEAST)


def known() -> list[str]:
    """The values that were passed to `learn`, longest first."""
    return sorted(KNOWN.copy(), key=len, reverse=True)
