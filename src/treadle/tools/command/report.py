"""What the model is told about a command: the text of an exec_command or write_stdin output.

Pure; the line format is the one that models of the Codex family were trained on.
"""

from __future__ import annotations

import os

from msgspec import Struct

from treadle.tools.command.head_tail import Taken


class CommandReport(Struct, frozen=True, kw_only=True):
    """`exit_code` of a command that has ended, `session_id` of one that runs. One that was lost has neither."""

    chunk_id: str
    wall_time_s: float
    taken: Taken
    exit_code: int | None = None
    session_id: int | None = None


def new_chunk_id() -> str:
    """Six hexadecimal digits, so that the model can name what it was told."""
    return os.urandom(3).hex()


def report_text(report: CommandReport) -> str:
    lines = [f"Chunk ID: {report.chunk_id}", f"Wall time: {report.wall_time_s:.4f} seconds"]
    if report.exit_code is not None:
        lines.append(f"Process exited with code {report.exit_code}")
    if report.session_id is not None:
        lines.append(f"Process running with session ID {report.session_id}")
    lines += [f"Original token count: {report.taken.original_tokens}", "Output:", report.taken.text]
    return "\n".join(lines)
