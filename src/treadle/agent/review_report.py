"""What a reviewer said, as people read it. Pure.

A reviewer is asked for JSON. One that answers otherwise has still said something: then its words are the report.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct


class _LineRange(Struct):
    start: int
    end: int


class _Location(Struct):
    absolute_file_path: str
    line_range: _LineRange


class _Finding(Struct):
    title: str
    body: str
    code_location: _Location


class _Report(Struct):
    findings: list[_Finding]
    overall_explanation: str


_reader = msgspec.json.Decoder(_Report)


def report_text(said: str) -> str:
    """Empty when nothing was said."""
    report = _read(said)
    if report is None:
        return said.strip()
    parts = [report.overall_explanation.strip()]
    if report.findings:
        parts.append("Full review comments:" if len(report.findings) > 1 else "Review comment:")
        parts += [_finding_text(finding) for finding in report.findings]
    return "\n\n".join(part for part in parts if part)


def _read(said: str) -> _Report | None:
    """Models put fences and words around what should stand alone."""
    begin, end = said.find("{"), said.rfind("}")
    try:
        return _reader.decode(said[begin : end + 1])
    except msgspec.DecodeError:
        return None


def _finding_text(finding: _Finding) -> str:
    lines = finding.code_location.line_range
    place = f"{finding.code_location.absolute_file_path}:{lines.start}-{lines.end}"
    title = " ".join(finding.title.split())
    return "\n".join([f"- {title} — {place}", *(f"  {line}" for line in finding.body.strip().splitlines())])
