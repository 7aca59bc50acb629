"""What an executor tells about its machine: shell, folders, platform."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Callable

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.execution.uris import uri_from_path
from treadle.protocol.exec import Capabilities, EnvironmentInfo, Shell

CAPABILITIES = Capabilities(
    fs_watch_missing=True,
    http_header_env_vars=True,
    file_write_streaming=True,
    sandboxed_file_streaming=True,
    process_ack=True,
    process_close_stdin=True,
    process_graceful_terminate=True,
    process_list=True,
    process_resize=True,
    process_signals=True,
)


def machine_info() -> EnvironmentInfo:
    """The facts about this machine and user, as of now."""
    shell = _shell()
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


def _shell() -> str:
    """The user's login shell, or the first usual one that exists."""
    candidates = [os.environ.get("SHELL", "")]
    with contextlib.suppress(KeyError):  # a user id without an account, as in many containers
        candidates.append(pwd.getpwuid(os.getuid()).pw_shell)
    for path in (*candidates, "/bin/bash", "/bin/sh"):
        if os.path.basename(path) in ("bash", "zsh", "sh", "dash", "ksh", "fish") and os.access(path, os.X_OK):
            return path
    return "/bin/sh"
