"""The machine of an executor: its facts (shell, folders, platform), and the environment that it gives to a child."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.execution.uris import uri_from_path
from treadle.protocol.exec import Capabilities, EnvironmentInfo, EnvPolicy, Shell

CAPABILITIES = Capabilities(
    fs_watch_missing=True,
    http_header_env_vars=True,
    file_write_streaming=True,
    sandboxed_file_streaming=True,
    fs_look=True,
    process_ack=True,
    process_close_stdin=True,
    process_graceful_terminate=True,
    process_list=True,
    process_resize=True,
    process_signals=True,
    sandbox_orders=True,
    session_detach=True,
)


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


def machine_info() -> EnvironmentInfo:
    """The facts about this machine and user, as of now."""
    # The user's login shell, or the first usual one that exists.
    import pwd  # only where commands run, which is on Linux

    shells = [os.environ.get("SHELL", "")]
    with contextlib.suppress(KeyError):  # a user id without an account, as in many containers
        shells.append(pwd.getpwuid(os.getuid()).pw_shell)
    shells += ("/bin/bash", "/bin/sh")
    known = (path for path in shells if os.path.basename(path) in ("bash", "zsh", "sh", "dash", "ksh", "fish"))
    shell = next((path for path in known if os.access(path, os.X_OK)), "/bin/sh")
    return EnvironmentInfo(
        shell=Shell(name=os.path.basename(shell), path=shell),
        cwd=_folder(os.getcwd),
        user_home_dir=_folder(lambda: os.path.expanduser("~")),
        temp_dir=_folder(lambda: os.environ.get("TMPDIR") or "/tmp"),
        platform_os="macos" if sys.platform == "darwin" else sys.platform,
        executor_version=__version__,
        capabilities=CAPABILITIES,
    )


def _folder(find: Callable[[], str]) -> str | None:
    """None where there is none: a working directory that was removed, a user without a home."""
    try:
        return uri_from_path(find())
    except (OSError, ExecError):
        return None


def child_environment(env: Mapping[str, str], policy: EnvPolicy | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """`env` alone without a policy; otherwise the policy applied to `inherited`, then `env` on top, unfiltered."""
    if policy is None:
        return dict(env)
    names: Iterable[str] = () if policy.inherit == "none" else inherited if policy.inherit == "all" else _CORE
    result = {name: inherited[name] for name in names if name in inherited and name not in _OWN}
    if not policy.ignore_default_excludes:
        result = _without(result, _SECRETS)
    result = _without(result, policy.exclude)
    result.update(policy.set)
    if policy.include_only:
        keep = _matcher(policy.include_only)
        result = {name: value for name, value in result.items() if keep(name)}
    result.update(env)
    return result


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
