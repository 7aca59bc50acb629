# mypy: disable-error-code="import-not-found"
"""Settings of threads and turns: approvals, sandbox, model, instructions, and how long they last."""

from __future__ import annotations

from typing import Any

from openai_codex import ApprovalMode, Sandbox
from openai_codex.types import Personality, ReasoningEffort, ReasoningSummary, ThreadSource, ThreadStartSource

from interop.sdk.stage import Stage, now

# A command that asks to run outside of the sandbox, which the policy `on-request` puts to the client.
ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}


async def approvals_persist(stage: Stage) -> Any:
    """What a turn changes stays for the next turns, and for the next server."""
    stage.configure(approval_policy="on-request", sandbox_mode="read-only")
    seen = {}

    def settings(method: str) -> list[str]:
        answer = stage.wire.results(method)[-1]
        return [answer["approvalPolicy"], answer["approvalsReviewer"], answer["sandbox"]["type"]]

    async def after_turn(**changes: Any) -> list[str]:
        stage.model.enqueue_assistant_message("ok")
        await now(thread.run("Go on.", **changes))
        await now(codex.thread_resume(thread.id))  # of a loaded thread: only tells its state
        return settings("thread/resume")

    stricter = {"approval_mode": ApprovalMode.deny_all, "sandbox": Sandbox.read_only}
    async with stage.codex() as codex:
        thread = await now(codex.thread_start(approval_mode=ApprovalMode.deny_all, sandbox=Sandbox.workspace_write))
        seen["start"] = settings("thread/start")
        seen["plain turn"] = await after_turn()
        seen["changed"] = await after_turn(approval_mode=ApprovalMode.auto_review, sandbox=Sandbox.full_access)
        seen["plain again"] = await after_turn()
        await now(codex.thread_fork(thread.id))
        seen["fork"] = settings("thread/fork")
        await now(codex.thread_fork(thread.id, **stricter))
        seen["stricter fork"] = settings("thread/fork")
    async with stage.codex() as codex:
        await now(codex.thread_resume(thread.id))
        seen["resumed"] = settings("thread/resume")
    async with stage.codex() as codex:
        thread = await now(codex.thread_resume(thread.id, **stricter))
        seen["resumed stricter"] = settings("thread/resume")
        seen["turn after that"] = await after_turn()
    return seen


async def _asked(stage: Stage, decision: str) -> Any:
    stage.configure(approval_policy="on-request", sandbox_mode="read-only")
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="call-1")
    stage.model.enqueue_assistant_message("So be it.")
    requests = []

    def approve(method: str, params: dict[str, Any]) -> dict[str, Any]:
        requests.append((method, params))
        return {"decision": decision}

    async with stage.codex(approve) as codex:
        # The public `thread_start` always sets an approval mode; the policy of the file needs the client below it.
        started = await now(codex._client.thread_start({}))
        turn = await now(stage.thread(codex, started.thread.id).turn("Make it."))
        result = await now(turn.run())
    params = requests[0][1]
    return {
        "policy": started.approval_policy.root.value,
        "requests": [method for method, _ in requests],
        "about": [params["threadId"] == started.thread.id, params["turnId"] == turn.id, params["itemId"]],
        "command": ["touch made" in params["command"], params["reason"]],
        "resolved": len(stage.wire.received("serverRequest/resolved")),
        "flags": [note["status"].get("activeFlags") for note in stage.wire.received("thread/status/changed")],
        "made": (stage.workspace / "made").exists(),
        "status": result.status.value,
        "item": [item.root.status.value for item in result.items if item.root.type == "commandExecution"],
        "answer": result.final_response,
    }


async def accepted(stage: Stage) -> Any:
    return await _asked(stage, "accept")


async def declined(stage: Stage) -> Any:
    return await _asked(stage, "decline")


async def cancelled(stage: Stage) -> Any:
    return await _asked(stage, "cancel")


async def patch(stage: Stage) -> Any:
    """A patch outside of what may be written asks as well; without a handler of the user the SDK answers."""
    stage.configure(approval_policy="on-request", sandbox_mode="read-only")
    text = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    stage.model.enqueue_custom_call("apply_patch", text, call_id="call-1")
    stage.model.enqueue_assistant_message("Patched.")
    async with stage.codex() as codex:
        started = await now(codex._client.thread_start({}))
        result = await now(stage.thread(codex, started.thread.id).run("Patch."))
    change = next(item.root for item in result.items if item.root.type == "fileChange")
    made = stage.workspace / "new.txt"
    asked = stage.wire.received("item/fileChange/requestApproval")
    return {
        "asked": [request["itemId"] for request in asked],
        "item": [change.status.value, [[part.kind.root.type, part.diff] for part in change.changes]],
        "path": change.changes[0].path == str(made),
        "text": made.read_text() if made.exists() else None,
        "answer": result.final_response,
    }


async def denied(stage: Stage) -> Any:
    """With `deny_all` nobody is asked: the model is told."""
    stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="call-1")
    stage.model.enqueue_assistant_message("Then not.")
    asked = []

    def approve(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(method)
        return {"decision": "accept"}

    async with stage.codex(approve) as codex:
        thread = await now(codex.thread_start(approval_mode=ApprovalMode.deny_all, sandbox=Sandbox.read_only))
        result = await now(thread.run("Escalate."))
    return {
        "asked": asked,
        "made": (stage.workspace / "made").exists(),
        "answer": result.final_response,
        "told": stage.model.requests()[-1].tool_outputs["call-1"] != "",
    }


async def started_with(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex(config_overrides=('model_reasoning_effort="high"',)) as codex:
        thread = await now(
            codex.thread_start(
                base_instructions="BASE INSTRUCTIONS",
                developer_instructions="DEVELOPER INSTRUCTIONS",
                config={"model_reasoning_summary": "detailed"},
                model="gpt-5.4",
                model_provider="mock",
                personality=Personality.pragmatic,
                service_name="a service",
                session_start_source=ThreadStartSource.startup,
                thread_source=ThreadSource.user,
            )
        )
        await now(thread.run("Hello."))
        source = (await now(thread.read())).thread.thread_source
    request = stage.model.single_request()
    instructions = [request.json.get("instructions") or "", *request.input_texts("developer")]
    return {
        "model": request.json["model"],
        "base": any("BASE INSTRUCTIONS" in text for text in instructions),
        "developer": any("DEVELOPER INSTRUCTIONS" in text for text in instructions),
        "reasoning": request.json["reasoning"],
        "source": source.value,
    }


async def turn_settings(stage: Stage) -> Any:
    """Model, effort, summary and folder stay; an output schema is for one turn."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    folder = stage.workspace / "sub"
    folder.mkdir()
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        stage.model.enqueue_assistant_message('{"n": 1}')
        result = await now(
            thread.run(
                "Give a number.",
                output_schema=schema,
                model="gpt-5.4",
                effort=ReasoningEffort.low,
                summary=ReasoningSummary.model_validate("detailed"),
                cwd=str(folder),
            )
        )
        stage.model.enqueue_function_call("exec_command", {"cmd": "pwd"}, call_id="call-1")
        stage.model.enqueue_assistant_message("There.")
        await now(thread.run("Where are you?"))
    first, _, last = stage.model.requests()
    return {
        "answer": result.final_response,
        "format": [first.json["text"]["format"]["type"], first.json["text"]["format"]["schema"] == schema],
        "later format": last.json.get("text", {}).get("format"),
        "models": [request.json["model"] for request in (first, last)],
        "efforts": [request.json["reasoning"]["effort"] for request in (first, last)],
        "summaries": [request.json["reasoning"]["summary"] for request in (first, last)],
        "pwd": str(folder) in last.tool_outputs["call-1"],
    }


async def sources(stage: Stage) -> Any:
    """Options that the SDK sends only to a server that calls itself 0.151 or newer."""
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        options = {"source": "a timer", "turn_service_tier": "flex", "personality": Personality.friendly}
        result = await now(thread.run("Go.", **options))
    sent = stage.wire.sent("turn/start")[0]
    return [result.status.value, sent["turnTrigger"], sent["serviceTierForTurn"]]
