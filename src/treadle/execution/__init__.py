"""Run processes and work with files, on this machine or on another one.

from treadle.execution import Environment

async with await Environment.connect("ws://127.0.0.1:8765") as env:
    print((await env.run(["uname", "-a"])).text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.errors import ExecError, ExecTimeout
    from treadle.execution.environment import Environment
    from treadle.execution.process import EventStream, Process
    from treadle.execution.process_values import (
        Closed,
        CompletedRun,
        Evicted,
        ExecParams,
        Exited,
        Failed,
        Output,
        OutputChunk,
        OutputStream,
        ProcessEvent,
        ProcessInfo,
        ReadResponse,
        WriteResult,
        WriteStatus,
    )
    from treadle.protocol.exec import EnvPolicy, Sandbox

# Loaded when first used: the exec-server is in this package and starts without most of it. The other public names are
# in `process_values`.
_HOME = {
    "EnvPolicy": "treadle.protocol.exec",
    "Environment": "treadle.execution.environment",
    "EventStream": "treadle.execution.process",
    "ExecError": "treadle.errors",
    "ExecTimeout": "treadle.errors",
    "Process": "treadle.execution.process",
    "Sandbox": "treadle.protocol.exec",
}

__all__ = [
    "Closed",
    "CompletedRun",
    "EnvPolicy",
    "Environment",
    "EventStream",
    "Evicted",
    "ExecError",
    "ExecParams",
    "ExecTimeout",
    "Exited",
    "Failed",
    "Output",
    "OutputChunk",
    "OutputStream",
    "Process",
    "ProcessEvent",
    "ProcessInfo",
    "ReadResponse",
    "Sandbox",
    "WriteResult",
    "WriteStatus",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "treadle.execution.process_values")), name)
    return internal_name(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.execution.bounded_reads import FileSnapshot, KnownRead, KnownReads, LocalDisks, is_local
    from treadle.execution.bounded_reads import read_in_thread
    from treadle.execution.environment import connect_over
    from treadle.execution.environment_provider import OpenedMachine, find_provider
    from treadle.execution.file_search import MAX_RESULTS, find, match, search, search_there, split_query
    from treadle.execution.file_versions import FileCopies, Listing, NotCopied, Version, Versions, differences
    from treadle.execution.file_versions import put_back, read_version
    from treadle.execution.files.file_watching import Change, Inotify, MissingWatches, OVERFLOW, lookups
    from treadle.execution.files.files_interface import DirEntry, FileStat, Files, MAX_BLOCK, OpenMode, WalkEntry
    from treadle.execution.files.files_interface import WalkLimits, WalkOutcome, os_error
    from treadle.execution.files.local_files import FileAccess, FileHandles, LocalFiles, MAX_HANDLES
    from treadle.execution.files.pinned_files import PinnedFiles
    from treadle.execution.files.remote_files import RemoteFiles
    from treadle.execution.files.safe_open import FilePermissions, PathAt, open_by_component, open_no_symlinks
    from treadle.execution.files.safe_open import path_at
    from treadle.execution.ignore_rules import IgnoreRules, MAX_PATTERN
    from treadle.execution.local_backend import LocalBackend
    from treadle.execution.local_process import LocalProcess, MAX_QUEUED, MAX_WRITE_IDS, READ_SIZE, Stdin
    from treadle.execution.machine import child_environment
    from treadle.execution.process_limits import ControlGroups, NoControlGroups, ProcessLimits
    from treadle.execution.process_values import Data, LogEvent, as_bytes
    from treadle.execution.project_files import ProjectFiles, origin_url, read_git_info
    from treadle.execution.providers.ssh import SshProvider
    from treadle.execution.remote_backend import RemoteBackend
    from treadle.execution.remote_machine import RemoteMachine
    from treadle.execution.remote_process import ACK_EVERY, MAX_HELD_BYTES, MAX_HELD_EVENTS, RemoteProcess
    from treadle.execution.remote_process import ReorderBuffer, TooFarAhead, missed_events
    from treadle.execution.sandbox.bubblewrap import Installation, bubblewrap_argv
    from treadle.execution.sandbox.command import ConfinedCommand, EntryProgram, RESULT, handing, open_sealed
    from treadle.execution.sandbox.confinement import Confined, HOST, Host, Mechanism, Unusable, confine, looks_denied
    from treadle.execution.sandbox.landlock import LAUNCHER, landlock_argv
    from treadle.execution.sandbox.mounts import MountTable, Placeholders
    from treadle.execution.sandbox.policy import Access, MAX_RULES, MINIMAL_PATHS, PathRule, Policy, both, contains
    from treadle.execution.sandbox.policy import policy_from_wire
    from treadle.execution.sandbox.profile_rules import matching_paths, split_pattern
    from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileAccess, ProfileRule, ProfileSandbox
    from treadle.execution.sandbox.profile_sandbox import ROOT, as_policy, narrowed, with_roots
    from treadle.execution.sandbox.remote_sandbox import unresolved_sandbox
    from treadle.execution.sandbox.sandbox_modes import UNPROTECTED, can_protect, may_write, sandbox_for
    from treadle.execution.sandbox.sandbox_roots import DIRECTORIES, FILES, HiddenHome, Pins, pin, pinned_paths
    from treadle.execution.sandbox.sandbox_roots import protected_names
    from treadle.execution.sandbox.seccomp import CALLS, MACHINES, filter_program
    from treadle.execution.server.dialing import Dialer
    from treadle.execution.server.exec_sessions import ExecSession
    from treadle.execution.server.file_methods import FileMethods, decode_base64
    from treadle.execution.server.http_requests import HttpRequests
    from treadle.execution.server.rights import Rights, TokenEntry
    from treadle.execution.server.tokens_file import apply_groups, load_rights
    from treadle.execution.supervisor import Supervisor
    from treadle.execution.supervisor_program import FamilyMember
    from treadle.execution.uris import native_path, path_from_uri, uri_from_path
    from treadle.execution.user_files import read_regular
    from treadle.execution.worktrees import Git, GitError, MAX_NAME, MAX_PART, Worktrees, alone, branch_problem
