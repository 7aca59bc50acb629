"""Prompts that make the mock model call the tools of codex."""

from __future__ import annotations

import json


def patch(name: str, body: str = "Add File: {}\n+one") -> str:
    text = f"*** Begin Patch\n*** {body.format(name)}\n*** End Patch"
    return f"CALL:apply_patch {json.dumps(text)}"


def escalated(command: str) -> str:
    """A command that is to run without the sandbox."""
    arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "it is needed"}
    return f"CALL:exec_command {json.dumps(arguments)}"
