"""Where a repository stands, read from its files: no program is started for it.

The files may be hostile: each is read once, up to a limit, and in time that grows with its length only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from treadle.execution.user_files import read_regular
from treadle.protocol.app.threads import GitInfo

_SHA: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CREDENTIALS: Final = re.compile(r"^(\w{1,32}://)[^/@]*@")
# HEAD and config are a few hundred bytes; packed references of a large repository are megabytes.
_MAX_REFERENCES: Final = 8 << 20
_MAX_BYTES: Final = 256 << 10
_MAX_VALUE: Final = 4096


def read_git_info(cwd: str) -> GitInfo | None:
    """The commit, the branch and the address of the origin; None outside of a repository. Blocking."""
    folder = _git_folder(cwd)
    head = None if folder is None else _read(os.path.join(folder, "HEAD"))
    if folder is None or head is None:
        return None
    head = head.strip()
    common = _common(folder)
    url = origin_url(_read(os.path.join(common, "config")) or "")
    if not head.startswith("ref: "):
        return GitInfo(sha=head if _SHA.fullmatch(head) else None, origin_url=url)
    reference = head.removeprefix("ref: ").strip()[:_MAX_VALUE]
    branch = reference.removeprefix("refs/heads/")
    return GitInfo(sha=_commit(folder, common, reference), branch=branch, origin_url=url)


def _git_folder(cwd: str) -> str | None:
    """`.git` of the nearest directory that has one; a worktree has a file that says where it is."""
    directory = os.path.abspath(cwd)
    while True:
        candidate = os.path.join(directory, ".git")
        if os.path.isdir(candidate):
            return candidate
        text = _read(candidate)
        if text is not None and text.startswith("gitdir: "):
            return os.path.normpath(os.path.join(directory, text.removeprefix("gitdir: ").strip()))
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _common(folder: str) -> str:
    text = _read(os.path.join(folder, "commondir"))
    return folder if text is None else os.path.normpath(os.path.join(folder, text.strip()))


def _commit(folder: str, common: str, reference: str) -> str | None:
    if ".." in reference.split("/"):
        return None
    for place in (folder, common):
        sha = (_read(os.path.join(place, reference)) or "").strip()
        if _SHA.fullmatch(sha):
            return sha
    for line in (_read(os.path.join(common, "packed-refs"), _MAX_REFERENCES) or "").splitlines():
        sha, _, name = line.partition(" ")
        if name == reference and _SHA.fullmatch(sha):
            return sha
    return None


def _read(path: str, limit: int = _MAX_BYTES) -> str | None:
    found = read_regular(path, limit)
    return None if found is None else found[0].decode("utf-8", "replace")


# --- git's configuration ---------------------------------------------------------------------------------------------


def origin_url(config: str) -> str | None:
    """The first `url` of the remote `origin`, without a password; included files are not looked at."""
    for section, name, value in _settings(config):
        if section == 'remote "origin"' and name == "url" and value:
            return _CREDENTIALS.sub(r"\1", value[:_MAX_VALUE])
    return None


def _settings(config: str) -> Iterator[tuple[str, str, str]]:
    """Section, name, value, line by line. A backslash at the end of a line continues it; such values are rare."""
    section = ""
    for line in config.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        line = line.strip()
        if line.startswith("["):
            header, closed, line = line[1:].partition("]")
            if not closed:
                continue
            section, line = _section(header), line.strip()
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            yield section, name.strip().lower(), _value(value.strip())


def _section(header: str) -> str:
    """The name in lower case, the quoted part behind it as it is: `[Remote "origin"]`."""
    name, quote, rest = header.partition('"')
    return f'{name.strip().lower()} "{rest}' if quote else name.strip().lower()


def _value(text: str) -> str:
    """Without quotes, and without a comment that follows it."""
    if '"' not in text:
        return re.split("[#;]", text, maxsplit=1)[0].rstrip()
    pieces = text.split('"')  # those with an odd number were inside
    plain = []
    for number, piece in enumerate(pieces):
        before_comment = piece if number % 2 else re.split("[#;]", piece, maxsplit=1)[0]
        plain.append(before_comment)
        if len(before_comment) != len(piece):
            break
    return "".join(plain).strip()
