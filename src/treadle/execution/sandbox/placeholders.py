"""Names that must not come into being below a writable directory while a command runs.

A mount needs something to be mounted on, so a missing name is held by an empty directory of ours, which the sandbox
then covers. It is a directory because an empty `.git` directory says nothing to git, which goes on looking further up.

Owns the making and the removing. Several commands and several servers may hold the same name: each has a shared lock
on the directory, and whoever can have it alone at the end removes it. An odd time of change marks it as ours, so one
that a killed server left behind is taken over by the next; as soon as somebody puts something into it, the time is
another and it is theirs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from typing import Final, Literal

from treadle.execution.sandbox.policy import Policy, Rule, refused

_MARK_NS: Final = 987_654_320 * 10**9  # whole and even, since some file systems count in steps of two seconds
_ROUNDS: Final = 50  # another server may remove it between our looking and our locking, again and again
_PAUSE_S: Final = 0.002
_MAKING: Final = threading.Lock()  # between a placeholder's making and its mark it looks like anybody's directory

Kept = Literal["held", "theirs", "impossible"]


class Placeholders:
    """The names that one command holds. `release` may be called more than once."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    def hold(self, policy: Policy) -> Policy:
        """Hold what the policy takes away below a writable path but is not there; the policy with what is held."""
        rules = {rule.path: rule for rule in policy.rules}
        for rule in policy.rules:
            if rule.access == "write" or policy.access(os.path.dirname(rule.path)) != "write":
                continue
            name = _first_missing(rule.path) or rule.path
            kept = self._keep(name)
            if kept == "impossible" or name != rule.path:
                del rules[rule.path]
            if kept == "held" and name != rule.path:
                rules[name] = Rule(name, "read")
        return Policy(tuple(rules[path] for path in sorted(rules)), policy.network)

    def release(self) -> None:
        while self._held:
            path, descriptor = self._held.pop()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_ours(descriptor) and _is_at(path, descriptor):
                    os.rmdir(path)
            except OSError:
                pass  # others hold it, or it is in use by now: then it is not for us to remove
            finally:
                os.close(descriptor)

    def _keep(self, path: str) -> Kept:
        for _ in range(_ROUNDS):
            with _MAKING:
                try:
                    _make(path)
                    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    return _verdict(path, error)
            if not _is_ours(descriptor):
                os.close(descriptor)
                return "theirs"
            if _shared(descriptor) and _is_at(path, descriptor):
                self._held.append((path, descriptor))
                return "held"
            os.close(descriptor)
            time.sleep(_PAUSE_S)
        # A command that can read it can lock it as well: then it stays, which is what we want of it now.
        return "theirs"


def _shared(descriptor: int) -> bool:
    """Whoever has it alone is about to remove it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    os.utime(path, ns=(_MARK_NS, _MARK_NS))


def _verdict(path: str, error: OSError) -> Kept:
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return "theirs"  # something is there that is no directory
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "theirs" if os.path.lexists(path) else "impossible"  # for the command too: it can do less than we can
    raise refused(f"{path!a} cannot be kept from being made: {error.strerror}") from None


def _first_missing(path: str) -> str | None:
    """The first name on the way to `path` that does not exist."""
    missing = None
    while not os.path.lexists(path):
        missing, path = path, os.path.dirname(path)
    return missing


def _is_ours(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mtime_ns == _MARK_NS


def _is_at(path: str, descriptor: int) -> bool:
    try:
        found, held = os.lstat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
