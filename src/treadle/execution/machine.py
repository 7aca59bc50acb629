"""What an executor tells about its machine: shell, folders, platform."""

from __future__ import annotations

import os
import sys
import tempfile

from treadle._version import __version__
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
    temp = tempfile.gettempdir()
    return EnvironmentInfo(
        shell=Shell(name=os.path.basename(shell), path=shell),
        cwd=uri_from_path(os.getcwd()),
        user_home_dir=uri_from_path(os.path.expanduser("~")),
        temp_dir=uri_from_path(temp),
        platform_os="macos" if sys.platform == "darwin" else sys.platform,
        executor_version=__version__,
        capabilities=CAPABILITIES,
    )


def _shell() -> str:
    """The user's login shell, or the first usual one that exists."""
    import pwd

    candidates = [os.environ.get("SHELL", "")]
    try:
        candidates.append(pwd.getpwuid(os.getuid()).pw_shell)
    except KeyError:  # a user id without an account, as in many containers
        pass
    for path in (*candidates, "/bin/bash", "/bin/sh"):
        if os.path.basename(path) in ("bash", "zsh", "sh", "dash", "ksh", "fish") and os.access(path, os.X_OK):
            return path
    return "/bin/sh"
