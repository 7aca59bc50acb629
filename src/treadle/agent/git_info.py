"""Where a repository stands, read from its files: no program is started for it."""

from __future__ import annotations

import os
import re
from typing import Final

from treadle.protocol.app.threads import GitInfo

_SHA: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ORIGIN: Final = re.compile(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(.+?)\s*$', re.MULTILINE | re.DOTALL)
_CREDENTIALS: Final = re.compile(r"^(\w+://)[^/@]*@")
# HEAD and config are a few hundred bytes; packed references of a large repository are megabytes.
_MAX_BYTES: Final = 8 << 20


def read_git_info(cwd: str) -> GitInfo | None:
    """The commit, the branch and the address of the origin; None outside of a repository. Blocking."""
    folder = _git_folder(cwd)
    head = None if folder is None else _read(os.path.join(folder, "HEAD"))
    if folder is None or head is None:
        return None
    head = head.strip()
    common = _common(folder)
    origin = _ORIGIN.search(_read(os.path.join(common, "config")) or "")
    url = None if origin is None else _CREDENTIALS.sub(r"\1", origin[1])
    if not head.startswith("ref: "):
        return GitInfo(sha=head if _SHA.fullmatch(head) else None, origin_url=url)
    reference = head.removeprefix("ref: ").strip()
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
    for line in (_read(os.path.join(common, "packed-refs")) or "").splitlines():
        sha, _, name = line.partition(" ")
        if name == reference and _SHA.fullmatch(sha):
            return sha
    return None


def _read(path: str) -> str | None:
    try:
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return None
