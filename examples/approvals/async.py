"""Decide about commands and patches that would leave the sandbox."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

from treadle import ApprovalDecision, ApprovalRequest, AsyncCodex, CodexConfig, Sandbox
from treadle.testing import AppServerHarness
from treadle.types import CommandFinished, FileChange, Text


async def decide(request: ApprovalRequest) -> ApprovalDecision:
    """A real one would ask somebody: the turn waits, everything else goes on."""
    if request.kind == "command":
        print(f"  asked      {request.command}  ({request.reason})")
        return ApprovalDecision.decline if "push" in (request.command or "") else ApprovalDecision.accept
    print(f"  asked      {request.kind} of {', '.join(change.path for change in request.changes)}")
    return ApprovalDecision.accept if request.kind == "patch" else ApprovalDecision.decline


async def main(config: CodexConfig | None = None) -> None:
    async with AsyncCodex(config, approval_handler=decide) as codex:
        thread = await codex.thread_start(sandbox=Sandbox.read_only)
        async for event in thread.events("Make a release."):
            match event:
                case CommandFinished(command=command, status=status):
                    print(f"  {status:11}{command}")
                case FileChange(paths=paths, status=status):
                    print(f"  {status:11}{', '.join(paths)}")
                case Text(text=text):
                    print(text)


if __name__ == "__main__":
    # Here a script plays the model, so that there is something to decide. With a real model, main() is all.
    with TemporaryDirectory() as folder, AppServerHarness(folder) as harness:
        outside = {"sandbox_permissions": "require_escalated"}
        patch = "*** Begin Patch\n*** Add File: CHANGES.md\n+First release.\n*** End Patch\n"
        model = harness.model
        model.enqueue_function_call("exec_command", {"cmd": "touch built", "justification": "Build?", **outside})
        model.enqueue_custom_call("apply_patch", patch)
        model.enqueue_function_call("exec_command", {"cmd": "git push", "justification": "Publish?", **outside})
        model.enqueue_assistant_message("It is built, but I was not allowed to publish it.")
        asyncio.run(main(harness.codex_config()))
