"""The tokens file of an exec-server: names, how each is known, and its rights.

    [tokens.ci]
    token_file = "ci.token"         # or sha256 = "…"; or certificate = "NAME" of a client certificate, or both
    folders = ["/srv/ci"]           # where its commands run, and what it reads and writes by `fs/*`
    sandbox = "workspace-write"     # the least that its commands are confined to

What cannot be understood is refused with the whole file: it may have been what takes a right away.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct, structs

from treadle.errors import ExecError
from treadle.execution.process_limits import ControlGroups, NoControlGroups, ProcessLimits
from treadle.execution.server.rights import Rights, TokenEntry
from treadle.own_python import pin_imports
from treadle.secrets import learn
from treadle.transport.tokens import MIN_TOKEN, NamedToken, TokenFileError, read_private, read_token

logger: logging.Logger = logging.getLogger(__name__)

# Of each counter, so many combinations of labels are counted apart.
MAX_TOKENS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMGT]?)(?:i?B)?")
_UNITS: Final = ("", "K", "M", "G", "T")


class _TokensFile(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: dict[str, TokenEntry]


def load_rights(
    path: str, *, hidden: Iterable[str] = (), dials: bool = False
) -> tuple[dict[str, Rights], tuple[NamedToken, ...]]:
    """The rights by name, and the tokens that the listener looks for. `hidden` are paths that no confined client sees,
    beside the files with tokens. Who `dials` needs no tokens in it. Raises `TokenFileError`."""
    mend = "`docs/exec-server.md` says what may stand there"
    try:
        entries = msgspec.convert(tomllib.loads(read_private(path)), _TokensFile).tokens
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise TokenFileError(path, str(error), mend) from None
    if not 1 <= len(entries) <= MAX_TOKENS:
        raise TokenFileError(path, f"it has {len(entries)} tokens, and 1 to {MAX_TOKENS} can be used", mend)
    pin_imports()  # whatever is done under a policy may write modules
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(path)))
    secret_files = [os.path.join(folder, each.token_file) for each in entries.values() if each.token_file]
    covered = [os.path.abspath(os.path.expanduser(path)), *secret_files, *hidden]
    rights: dict[str, Rights] = {}
    tokens: list[NamedToken] = []
    for name, entry in entries.items():
        try:
            token = _token(name, entry, folder)
            if token.digest is None and token.certificate is None and not dials:
                raise ValueError("it needs `sha256`, `token_file` or `certificate`")
            tokens.append(token)
            rights[name] = Rights(name, entry, covered)
            limits = _limits(entry)
            rights[name].limits = None if limits == ProcessLimits() else limits
        except TokenFileError:
            raise
        except (ExecError, ValueError) as error:
            raise TokenFileError(path, f"[tokens.{name[:64]}]: {error}", mend) from None
    known = [(token.digest, token.certificate if token.digest is None else None) for token in tokens]
    if len(set(known)) < len(known) and not dials:
        raise TokenFileError(path, "two of its names have the same token or certificate", mend)
    return rights, tuple(tokens)


def apply_groups(rights: Mapping[str, Rights], make: Callable[[], ControlGroups]) -> ControlGroups | None:
    """Have limits for all commands of a client together, where a client has such limits and control groups can be used.
    Raises `NoControlGroups` where something was asked for that only they can do."""
    limited = [(each, each.limits) for each in rights.values() if each.limits is not None]
    limited = [(each, limits) for each, limits in limited if limits.memory or limits.pids or limits.cpus]
    if not limited:
        return None
    try:
        groups = make()
    except NoControlGroups as error:
        wanting = [each.name for each, limits in limited if limits.pids or limits.cpus]
        if wanting:
            raise NoControlGroups(f"`pids` and `cpus` of {', '.join(wanting)} need control groups: {error}") from None
        logger.warning("memory is limited for each process and not for each client: %s", error)
        return None
    for each, limits in limited:
        each.limits = structs.replace(limits, cgroup=groups.add(each.name, limits))
    return groups


def _token(name: str, entry: TokenEntry, folder: str) -> NamedToken:
    if not _NAME.fullmatch(name):
        raise ValueError("a name has letters, digits, `.`, `_` and `-`, at most 64")
    if entry.sandbox == "workspace-write" and not entry.folders:
        raise ValueError('sandbox = "workspace-write" needs `folders`; or say "read-only" or "none"')
    for path in (*(entry.folders or ()), *entry.readable):
        if not os.path.isabs(path):
            raise ValueError(f"{path!a} is no absolute path")
    if entry.folders is not None and not entry.folders:
        raise ValueError("`folders` is empty: leave it out, or name some")
    if (entry.sha256 is None) + (entry.token_file is None) == 0:
        raise ValueError("it has `sha256` and `token_file`: one of them")
    digest = entry.sha256
    if entry.token_file is not None:
        token = read_token(os.path.join(folder, entry.token_file))
        if len(token) < MIN_TOKEN:
            raise ValueError(f"its token has less than {MIN_TOKEN} characters")
        learn([token])
        digest = hashlib.sha256(token.encode()).hexdigest()
    return NamedToken(name=name, digest=digest, certificate=entry.certificate, metrics=entry.metrics)


def _limits(entry: TokenEntry) -> ProcessLimits:
    return ProcessLimits(
        memory=_size(entry.memory),
        pids=entry.pids,
        cpus=entry.cpus,
        files=entry.files,
        file_bytes=_size(entry.file_bytes),
        cpu_s=entry.cpu_s,
    )


def _size(given: int | str | None) -> int | None:
    if not isinstance(given, str):
        return given
    found = _SIZE.fullmatch(given)
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{given!a} is no size: a number of bytes, or as in 512 MiB and 4G")
    return int(found[1]) << 10 * _UNITS.index(found[2])
