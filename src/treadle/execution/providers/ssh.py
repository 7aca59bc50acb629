"""`ssh`: another machine by the system's OpenSSH, with its settings, its agent and its jump hosts.

    [environments.box]
    provider = "ssh"
    options = { host = "user@box" }

The machine is there already: what is started there is an exec-server of the user, which goes on when the connection
ends (`treadle exec-server --attach`), and what is stopped is that server. Nobody is asked for a password or about a key
of a host: ssh must be able to log in by itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from treadle._version import __version__
from treadle.errors import ExecError
from treadle.execution.environment_provider import EnvironmentProvider, OpenedMachine
from treadle.execution.providers import (
    find_program,
    forget_name,
    machine_name,
    read_options,
    run_program,
    version_problem,
)

# A user, a name or an address, and in the form of a URL a port. Settings of ssh put it into commands (`ProxyCommand`).
_HOST: Final = re.compile(
    r"(ssh://)?([A-Za-z0-9_][\w.+-]*@)?([A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.%\w]+\]|[0-9A-Fa-f:]+)(:\d+)?"
)
CONNECT_S: Final = 10
# A login, and the start of Python there.
CHECK_S: Final = 60.0
_SETTINGS: Final = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    # A way that is gone is noticed, and given up.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # What the settings of the user want for logins by hand.
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "RequestTTY=no",
)
_REFUSED: Final = 255
_NOT_FOUND: Final = (126, 127)


class SshOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str
    """`HOST`, `USER@HOST`, or a `Host` of the settings of ssh."""
    port: int | None = None
    config: str | None = None
    """A file with settings for ssh, in place of the user's."""
    command: str = "treadle"
    """What `treadle` is called there; `~/` in front is the home there."""
    args: tuple[str, ...] = ()
    """What comes before `exec-server`, where the command is one that starts Treadle."""


class SshProvider:
    name = "ssh"

    def __init__(self) -> None:
        self._fits: set[SshOptions] = set()

    async def open(self, environment_id: str, options: Mapping[str, Any], state: str) -> OpenedMachine:
        given = read_options(SshOptions, options, self.name)
        login = _login(given)
        if given not in self._fits:
            await _check_version(given, login)
            self._fits.add(given)
        name = machine_name(environment_id, state)
        assert name is not None
        return OpenedMachine(through=(*login, _there(given, "exec-server", "--attach", name)))

    async def stop(self, environment_id: str, options: Mapping[str, Any], state: str) -> bool:
        given = read_options(SshOptions, options, self.name)
        name = machine_name(environment_id, state, make=False)
        if name is None:  # nothing was ever started there
            return False
        done = await run_program([*_login(given), _there(given, "exec-server", "--stop", name)], timeout=CHECK_S)
        if done.exit_code != 0:
            raise _failed(given, done.exit_code, done.said)
        forget_name(state)
        return not done.printed.startswith("no ")


PROVIDERS: Final[Mapping[str, EnvironmentProvider]] = {"ssh": SshProvider()}


def _login(given: SshOptions) -> tuple[str, ...]:
    """The command line of ssh up to what runs there."""
    if not _HOST.fullmatch(given.host):
        raise ExecError(f"{given.host!r} cannot be a host of ssh: it is like `box`, `user@box` or `user@10.0.0.7`")
    words = [find_program("ssh", "openssh-client"), "-T"]
    if given.config is not None:
        words += ["-F", given.config]
    if given.port is not None:
        words += ["-p", str(given.port)]
    for setting in _SETTINGS:
        words += ["-o", setting]
    return (*words, "--", given.host)


def _there(given: SshOptions, *words: str) -> str:
    """What the user's shell there is to run."""
    home, command = ('"$HOME"/', given.command[2:]) if given.command.startswith("~/") else ("", given.command)
    return f"exec {home}{shlex.join([command, *given.args, *words])}"


async def _check_version(given: SshOptions, login: tuple[str, ...]) -> None:
    done = await run_program([*login, _there(given, "--version")], timeout=CHECK_S)
    if done.exit_code != 0:
        raise _failed(given, done.exit_code, done.said)
    if (problem := version_problem(done.printed)) is not None:
        raise ExecError(f"`{given.command}` on {given.host} cannot be used: {problem}; {_install(given)}")


def _failed(given: SshOptions, exit_code: int, said: str) -> ExecError:
    if exit_code == _REFUSED:  # of ssh itself
        do = f"`ssh -o BatchMode=yes {given.host} true` must work without a question"
        return ExecError(f"ssh cannot log in to {given.host}: {said or 'it does not say why'}; {do}")
    if exit_code in _NOT_FOUND:
        return ExecError(f"there is no `{given.command}` on {given.host} ({said}): {_install(given)}")
    return ExecError(f"`{given.command}` on {given.host} has failed with exit code {exit_code}: {said}")


def _install(given: SshOptions) -> str:
    return (
        f"to install it there, `ssh {given.host} pipx install treadle=={__version__}`, and name it where logins do not "
        'find it, `options = { host = …, command = "~/.local/bin/treadle" }`'
    )
