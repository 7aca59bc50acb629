"""Decide about commands and patches that would leave the sandbox."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from treadle import ApprovalRequest, Codex, CodexConfig, Sandbox
from treadle.testing import AppServerHarness
from treadle.types import CommandFinished, FileChange, Text


def decide(request: ApprovalRequest) -> bool:
    """True is yes. Anything else that is not an `ApprovalDecision` is no, and so is an exception."""
    if request.kind == "command":
        print(f"  asked      {request.command}  ({request.reason})")
        return "push" not in (request.command or "")
    print(f"  asked      {request.kind} of {', '.join(change.path for change in request.changes)}")
    return request.kind == "patch"


def main(config: CodexConfig | None = None) -> None:
    with Codex(config, approval_handler=decide) as codex:
        thread = codex.thread_start(sandbox=Sandbox.read_only)
        for event in thread.events("Make a release."):
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
        main(harness.codex_config())
