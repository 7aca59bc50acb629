"""`env.files`: the files of an environment, wherever it is. What users import, in one place."""

from __future__ import annotations

from treadle.execution.files.base import Files
from treadle.execution.files.file_values import DirEntry, FileStat, WalkEntry, WalkFailure, WalkOutcome
from treadle.execution.files.local import LocalFiles
from treadle.execution.files.remote import RemoteFiles

__all__ = [
    "DirEntry",
    "FileStat",
    "Files",
    "LocalFiles",
    "RemoteFiles",
    "WalkEntry",
    "WalkFailure",
    "WalkOutcome",
]
