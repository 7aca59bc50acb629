"""`Rights`: what the clients of one name may do on an exec-server. `tokens_file` reads them.

A right is never widened by what a client asks for: its own sandbox is narrowed to what the rights allow, rule by rule,
and what is not given is refused. So a confined client sees its folders, what is `readable`, and the programs of the
system (for its commands), whatever `sandbox` it sends. It does not see the files with the tokens, which would make it
somebody else. With `sandbox = "none"` commands run as the user of the server: `folders` then keeps its `fs/*` and the
working directories in order, and nothing keeps the commands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct, structs

from treadle.errors import ExecDenied, ExecError
from treadle.execution.uris import uri_from_path
from treadle.logs.audit import RefusalLog
from treadle.protocol.exec import EnvironmentInfo
from treadle.secrets import is_secret

logger: logging.Logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from treadle.execution.process_limits import ProcessLimits
    from treadle.execution.sandbox.policy import Access, Policy

_VARIABLES: Final = frozenset({"PWD", "OLDPWD"})  # named like a password, and none

Positive = Annotated[int, Meta(ge=1, le=2**53)]


class TokenEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the tokens file. Without `folders` all files are meant; the defaults are the narrow side."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    token_file: str | None = None
    certificate: str | None = None
    folders: tuple[str, ...] | None = None
    readable: tuple[str, ...] = ()
    sandbox: Literal["read-only", "workspace-write", "none"] = "workspace-write"
    network: bool = False
    http: bool = False
    metrics: bool = False
    sessions: Positive = 16
    processes: Positive = 64
    memory: Positive | str | None = None
    pids: Positive | None = None
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    files: Annotated[int, Meta(ge=16, le=2**20)] | None = None
    file_bytes: Positive | str | None = None
    cpu_s: Positive | None = None


class Rights:
    """What the clients of one name may do. `name` is empty where tokens have no names: then they may do everything."""

    def __init__(self, name: str = "", entry: TokenEntry | None = None, hidden: Iterable[str] = ()) -> None:
        """`hidden` are paths that no confined client sees. Raises `ExecError` for a folder that is not there."""
        self.name = name
        self.entry: TokenEntry = entry or TokenEntry(sandbox="none", http=True, metrics=True)
        self.limited: bool = entry is not None
        self.confined: bool = self.entry.sandbox != "none"
        self.limits: ProcessLimits | None = None
        self.refusals: RefusalLog = RefusalLog(logger)
        self._folders: dict[str, tuple[int, int]] = {}
        if not self.limited:
            return
        from treadle.execution.sandbox.policy import MINIMAL_PATHS, PathRule, Policy  # only with a tokens file

        def policy(rules: Mapping[str, Access], *, network: bool) -> Policy:
            return Policy(tuple(PathRule(path, rules[path]) for path in sorted(rules)), network)

        # Where the folders lead is known from the start: a client who may write the directory above one puts no other
        # in its place.
        self._folders = {path: _identity(path) for path in map(os.path.realpath, self.entry.folders or ())}
        inside: Access = "read" if self.entry.sandbox == "read-only" else "write"
        own: dict[str, Access] = {"/": inside} if self.entry.folders is None else {}
        system: dict[str, Access] = (
            {} if own else dict.fromkeys(map(os.path.realpath, filter(os.path.exists, MINIMAL_PATHS)), "read")
        )
        own |= dict.fromkeys(map(os.path.realpath, self.entry.readable), "read")
        own |= dict.fromkeys(self._folders, inside)
        covered: dict[str, Access] = dict.fromkeys(map(os.path.realpath, filter(os.path.exists, hidden)), "none")
        # This process itself reads files for `fs/*`: its /proc/self has its environment.
        self._files = policy(own | covered | {"/proc": "none"}, network=True)
        self._commands = policy(system | own | covered, network=self.entry.network)

    def __repr__(self) -> str:
        return f"<Rights of {self.name!r}>"

    @property
    def held(self) -> bool:
        """Whether some files are out of reach."""
        return self.confined or bool(self._folders)

    def command_policy(self) -> Policy | None:
        """The least that a command is confined to, if anything. Raises `ExecDenied` when a folder was replaced."""
        if not self.confined:
            return None
        self._check_folders()
        return self._commands

    def file_policy(self) -> Policy | None:
        """The files that `fs/*` reaches; None is all of them."""
        if not self.held:
            return None
        self._check_folders()
        return self._files

    def check_cwd(self, path: str) -> None:
        """Raise `ExecDenied` for a working directory outside of the folders."""
        canonical = os.path.realpath(path)
        if self._folders and not any(os.path.commonpath((each, canonical)) == each for each in self._folders):
            raise self.denied(f"may not run commands in {canonical!a}, only in {', '.join(map(ascii, self._folders))}")

    def check_method(self, method: str) -> None:
        """Raise `ExecDenied` for a method that takes a right of its own."""
        if method == "http/request" and not self.entry.http:
            raise self.denied("may make no HTTP requests (`http` in the tokens file)")
        if method == "fs/watchMissing" and self.held:
            raise self.denied("may not watch files: it reaches only some of them")

    def denied(self, what: str) -> ExecDenied:
        return ExecDenied(f"the token {self.name!r} {what}")

    def environment(self) -> Mapping[str, str]:
        """The variables of the server that commands may inherit: none that looks like a secret of somebody else."""
        if not self.limited:
            return os.environ
        return {name: value for name, value in os.environ.items() if name in _VARIABLES or not is_secret(name, value)}

    def info(self, machine: EnvironmentInfo) -> EnvironmentInfo:
        """What this client is told of the machine: what it can use."""
        if not self.limited:
            return machine
        able = structs.replace(machine.capabilities, http_header_env_vars=False)
        if self.held:
            able = structs.replace(able, fs_watch_missing=False)
        cwd = uri_from_path(next(iter(self._folders))) if self._folders else machine.cwd
        return structs.replace(machine, capabilities=able, cwd=cwd)

    def _check_folders(self) -> None:
        for path, identity in self._folders.items():
            if os.path.realpath(path) != path or _identity(path) != identity:
                raise self.denied(f"has lost its folder {path!a}: it was replaced since the server was started")


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ExecError(f"the folder {path!a} of a token cannot be used: {error.strerror}") from None
    return status.st_dev, status.st_ino
