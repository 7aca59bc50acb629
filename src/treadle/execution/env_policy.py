"""The environment of a child: what it inherits from the executor, what is left out, what is laid on top. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from treadle.protocol.exec import EnvPolicy

_CORE = ("PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER")
_SECRETS = ("*KEY*", "*SECRET*", "*TOKEN*")
# Credentials of the server itself: never for a child, whatever the policy says.
_OWN = (
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "TREADLE_EXEC_TOKEN",
)


def child_environment(env: Mapping[str, str], policy: EnvPolicy | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """`env` alone without a policy; otherwise the policy applied to `inherited`, then `env` on top, unfiltered."""
    if policy is None:
        return dict(env)
    result = _inherit(policy, inherited)
    if not policy.ignore_default_excludes:
        result = _without(result, _SECRETS)
    result = _without(result, policy.exclude)
    result.update(policy.set)
    if policy.include_only:
        keep = _matcher(policy.include_only)
        result = {name: value for name, value in result.items() if keep(name)}
    result.update(env)
    return result


def _inherit(policy: EnvPolicy, inherited: Mapping[str, str]) -> dict[str, str]:
    if policy.inherit == "none":
        return {}
    names: Iterable[str] = inherited if policy.inherit == "all" else _CORE
    return {name: inherited[name] for name in names if name in inherited and name not in _OWN}


def _without(env: dict[str, str], patterns: Iterable[str]) -> dict[str, str]:
    patterns = tuple(patterns)
    if not patterns:
        return env
    drop = _matcher(patterns)
    return {name: value for name, value in env.items() if not drop(name)}


class _matcher:
    """Case-insensitive globs: `*` and `?`, nothing else is special."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._pattern = re.compile("|".join(map(_regex, patterns)), re.IGNORECASE | re.DOTALL)

    def __call__(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None


def _regex(pattern: str) -> str:
    """Each part between two stars is taken where it first fits, for good: many stars cost no more than one."""
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in pattern.split("*"))
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"
