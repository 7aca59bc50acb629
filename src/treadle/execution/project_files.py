"""`ProjectFiles`: what the server itself reads because a project has it: instructions, skills, facts of a repository.

A project may come from anywhere, and commands may change it at any time. So what the commands of a thread may not read
is not read for it either, wherever links lead, and what belongs to somebody else is left out, by the rule that git has.
Owns both questions, and where a project begins. Blocking: callers on an event loop use `bounded_reads`.

Where a repository stands (`read_git_info`) is read from its files: no program is started in it. They may be hostile:
each is read once, up to a limit, and in time that grows with its length only.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from functools import cached_property
from typing import TYPE_CHECKING, Final

from treadle.errors import ExecError
from treadle.execution.bounded_reads import FileSnapshot, Readers, read_in_thread
from treadle.execution.sandbox.policy import Policy, contains, policy_from_wire
from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileSandbox
from treadle.execution.sandbox.sandbox_modes import is_unconfined, sandbox_for
from treadle.execution.user_files import read_regular
from treadle.protocol.app.settings import ReadOnlySandboxPolicy
from treadle.protocol.app.threads import GitInfo

if TYPE_CHECKING:
    from treadle.execution.files.files_interface import Files

_ROOT_MARK: Final = ".git"
_MAX_DEPTH: Final = 128  # directories between the root of a repository and the working directory
_GIT_S: Final = 5.0  # git reads two small files
_SHA: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# As git allows them. It is joined to a path: an absolute one, or one upwards, would name any file.
_REFERENCE: Final = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\[\\]+")
_CREDENTIALS: Final = re.compile(r"^(\w{1,32}://)[^/@]*@")
# HEAD and config are a few hundred bytes; packed references of a large repository are megabytes.
_MAX_REFERENCES: Final = 8 << 20
_MAX_BYTES: Final = 256 << 10
_MAX_VALUE: Final = 4096


class ProjectFiles:
    """The files around `cwd`, for a thread with this `confinement`. The home is out of reach also with full access: a
    command that reads it is seen, and a link that leads there would not be.

    `left_out` has what was not read, with the reason, for a person. `snapshot` is current while nothing else can be
    found; never when something is left out, because that may be mended where it does not look.
    """

    def __init__(
        self, cwd: str, home: str | None, confinement: Confinement | None = None, snapshot: FileSnapshot | None = None
    ) -> None:
        self.cwd: str = cwd
        self.home: str | None = home
        self.snapshot: FileSnapshot = FileSnapshot() if snapshot is None else snapshot
        self.left_out: dict[str, str] = {}
        self.readers: Readers | None = None
        """The threads that may wait for it; None for those of local files."""
        self._confinement: Confinement = (
            ReadOnlySandboxPolicy() if confinement is None or is_unconfined(confinement) else confinement
        )

    @property
    def warnings(self) -> list[str]:
        return [f"{path} is left out: {reason}" for path, reason in self.left_out.items()]

    # --- where it begins ---

    @property
    def repository(self) -> str | None:
        """The root of the repository; None outside of one, and in one of somebody else's."""
        return self._found[0]

    @property
    def folders(self) -> list[str]:
        """From the root of the repository down to the working directory; that alone outside of one."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[str | None, list[str]]:
        return self._find_folders()

    def _find_folders(self) -> tuple[str | None, list[str]]:
        try:
            upwards = [os.path.abspath(self.cwd)]
        except OSError:  # a relative one, and this process is in a directory that was removed
            return None, []
        while len(upwards) < _MAX_DEPTH and (parent := os.path.dirname(upwards[-1])) != upwards[-1]:
            upwards.append(parent)
        marks = (self.snapshot.note_mark(os.path.join(folder, _ROOT_MARK)) for folder in upwards)
        root = next((number for number, is_there in enumerate(marks) if is_there), None)
        if root is None:
            return None, upwards[:1]
        # The mark counts as well: everybody can make one in a directory like `/tmp`, which is root's.
        top = upwards[root]
        try:
            found = os.stat(top), os.lstat(os.path.join(top, _ROOT_MARK))
        except OSError as error:
            reason: str | None = f"it cannot be looked at ({error.strerror})"
        else:
            reason = next((why for status in found if (why := self._foreign(status, top)) is not None), None)
        if reason is not None:  # somebody who can write above a directory must not give orders in it
            self._leave_out(upwards[root], reason)
            return None, upwards[:1] if root else []
        return upwards[root], upwards[root::-1]

    @cached_property
    def _canonical(self) -> str:
        """Where the project begins, without links."""
        return os.path.realpath(self.folders[0] if self.folders else self.cwd)

    def has(self, path: str) -> bool:
        """Whether there is something at a path, if only a link."""
        return os.path.lexists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def encloses(self, real: str) -> bool:
        """Whether a path without links lies in the project."""
        return contains(self._canonical, real)

    # --- what may be read ---

    async def readable(self) -> Files:
        """The files that commands may read, for who reads by the interface of `Files`."""
        from treadle.execution.files.local_files import LocalFiles  # few read so

        return LocalFiles(await read_in_thread(lambda: self.policy))

    def read(
        self, path: str, limit: int, *, inside: bool = False, owned: bool = True
    ) -> tuple[bytes, os.stat_result] | None:
        """The first `limit` bytes of a regular file; None where there is none, or it is `left_out`.

        `inside`: after all links were followed, it must lie in the project. `owned`: it must not be somebody else's.
        """
        reason: str | None = None

        def check(real: str, status: os.stat_result) -> bool:
            nonlocal reason
            if inside and not self.encloses(real):
                reason = f"it leads to {real}, which is not in {self._canonical}"
            elif not self.may_read(real):
                reason = f"commands of this thread may not read {real}"
            elif owned:
                reason = self._foreign(status, self.folders[0] if self.folders else self.cwd)
            return reason is None

        found = read_regular(path, limit, check)
        if found is None and reason is None and os.path.lexists(path):
            reason = "it cannot be read, or is not a regular file"
        if reason is not None:
            self._leave_out(path, reason)
        return found

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out[path] = reason
        self.snapshot.expire()

    @cached_property
    def policy(self) -> Policy:
        """What commands may read. Raises `ExecError`."""
        # Nothing is written by it, so nothing has to be protected from that.
        policy = policy_from_wire(sandbox_for(self._confinement, self.cwd, home=self.home, protect=False))
        assert policy is not None
        return policy

    @cached_property
    def _real_home(self) -> str | None:
        return None if self.home is None else os.path.realpath(self.home)

    def may_read(self, real: str) -> bool:
        """Whether commands of the thread may read what has this path without links."""
        if contains("/proc", real):
            return False  # it says something else to this process than to a command: its environment, for one
        is_in_home = self._real_home is not None and contains(self._real_home, real)
        if not is_in_home and not isinstance(self._confinement, ProfileSandbox):
            return True  # a mode hides nothing but the home, and its policy takes longer to make than a file to read
        try:
            return self.policy.access(real) != "none"
        except ExecError:
            return False

    # --- whose it is ---

    def _foreign(self, status: os.stat_result, root: str) -> str | None:
        """Why a file of the project at `root` is not trusted; None if it is."""
        user = os.geteuid()
        owners = {user, 0}
        if user == 0 and (sudo := os.environ.get("SUDO_UID", "")).isdecimal():
            owners.add(int(sudo))
        if status.st_uid in owners:
            return None
        real = os.path.realpath(root)
        for safe in self._safe_directories:
            if safe == "*" or os.path.realpath(safe) == real:
                return None
            if safe.endswith("/*") and contains(os.path.realpath(safe[:-2]), real):
                return None
        return (
            f"it belongs to user {status.st_uid}, neither to you ({user}) nor to root; if you trust it, type: "
            f"git config --global --add safe.directory {shlex.quote(root)}"
        )

    @cached_property
    def _safe_directories(self) -> list[str]:
        """`safe.directory` of the user and of the machine. A repository has no say in it: git is run outside of any."""
        try:
            done = subprocess.run(
                ["git", "config", "--null", "--type=path", "--get-all", "safe.directory"],
                cwd="/",
                env={**os.environ, "GIT_DIR": os.devnull},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):  # there is no git
            return []
        found = [os.fsdecode(path) for path in done.stdout.split(b"\0")[:-1]]
        return found[len(found) - found[::-1].index("") :] if "" in found else found  # an empty one takes back the rest


# --- the repository --------------------------------------------------------------------------------------------------


def read_git_info(project: ProjectFiles) -> GitInfo | None:
    """The commit, the branch and the address of the origin; None outside of a repository. Blocking."""
    root = project.repository
    if root is None:
        return None
    folder = os.path.join(root, ".git")
    if not project.is_folder(folder):  # a worktree has a file that says where it is
        text = _read(project, folder) or ""
        if not text.startswith("gitdir: "):
            return None
        folder = os.path.normpath(os.path.join(root, text.removeprefix("gitdir: ").strip()))
    head = _read(project, os.path.join(folder, "HEAD"))
    if head is None:
        return None
    head = head.strip()
    shared = _read(project, os.path.join(folder, "commondir"))
    common = folder if shared is None else os.path.normpath(os.path.join(folder, shared.strip()))
    url = origin_url(_read(project, os.path.join(common, "config")) or "")
    if not head.startswith("ref: "):
        return GitInfo(sha=head if _SHA.fullmatch(head) else None, origin_url=url)
    reference = head.removeprefix("ref: ").strip()[:_MAX_VALUE]
    if _REFERENCE.fullmatch(reference) is None or ".." in reference or reference.endswith("/"):
        return GitInfo(origin_url=url)
    branch = reference.removeprefix("refs/heads/")
    return GitInfo(sha=_commit(project, folder, common, reference), branch=branch, origin_url=url)


def _commit(project: ProjectFiles, folder: str, common: str, reference: str) -> str | None:
    for place in (folder, common):
        sha = (_read(project, os.path.join(place, reference)) or "").strip()
        if _SHA.fullmatch(sha):
            return sha
    for line in (_read(project, os.path.join(common, "packed-refs"), _MAX_REFERENCES) or "").splitlines():
        sha, _, name = line.partition(" ")
        if name == reference and _SHA.fullmatch(sha):
            return sha
    return None


def _read(project: ProjectFiles, path: str, limit: int = _MAX_BYTES) -> str | None:
    # Whose the files are does not matter: in a repository that several people share, they are everybody's.
    found = project.read(path, limit, owned=False)
    return None if found is None else found[0].decode("utf-8", "replace")


# --- git's configuration ---------------------------------------------------------------------------------------------


def origin_url(config: str) -> str | None:
    """The first `url` of the remote `origin`, without a password; included files are not looked at."""
    section = ""
    # A backslash at the end of a line continues it; such values are rare.
    for line in config.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        line = line.strip()
        if line.startswith("["):
            header, closed, line = line[1:].partition("]")
            if not closed:
                continue
            # The name in lower case, the quoted part behind it as it is: `[Remote "origin"]`.
            title, quote, rest = header.partition('"')
            section = title.strip().lower() + (f' "{rest}' if quote else "")
            line = line.strip()
        name, equals, value = line.partition("=")
        if not equals or line.startswith(("#", ";")):
            continue
        if section == 'remote "origin"' and name.strip().lower() == "url" and (url := _value(value.strip())):
            return _CREDENTIALS.sub(r"\1", url[:_MAX_VALUE])
    return None


def _value(text: str) -> str:
    """The value without quotes, and without a comment that follows it."""
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
