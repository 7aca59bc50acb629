# mypy: disable-error-code="import-not-found"
"""The server as a whole: start, models, account, errors."""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

from openai_codex import (
    AsyncCodex,
    Codex,
    CodexRpcError,
    InvalidRequestError,
    ServerBusyError,
    TransportClosedError,
    is_retryable_error,
    retry_on_overload,
)
from openai_codex.types import ModelListResponse

from interop.sdk.package import error_of, write
from interop.sdk.stage import Stage, now

FACES: Final[tuple[Literal["sync"], Literal["async"]]] = ("sync", "async")
BURST: Final = 1000


async def metadata(stage: Stage) -> Any:
    async with stage.codex(client_name="my_client", client_title="My client", client_version="7.8") as codex:
        known = codex.metadata
    return {
        "server": [known.serverInfo.name, bool(known.serverInfo.version)],
        "agent": known.userAgent.startswith("my_client/") and "(my_client; 7.8)" in known.userAgent,
        "platform": [known.platformFamily, known.platformOs],
    }


async def lazy(stage: Stage) -> Any:
    """Without `with`: the async client connects at its first use, and both close explicitly."""
    if stage.face == "sync":
        codex = Codex(stage.config())
        name = codex.metadata.serverInfo.name
        codex.close()
    else:
        codex = AsyncCodex(stage.config())
        await codex.models()
        name = codex.metadata.serverInfo.name
        await codex.close()
    return name


async def launched(stage: Stage) -> Any:
    """Any command line will do, and settings of the command line win over the file."""
    stage.model.enqueue_assistant_message("ok")
    argv = (stage.program, "-c", 'model="gpt-5.4"', "app-server", "--listen", "stdio://")
    async with stage.codex(launch_args_override=argv) as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run("Hello."))
    return [result.final_response, stage.model.single_request().json["model"]]


async def stable_only(stage: Stage) -> Any:
    """A client without the experimental API runs turns all the same."""
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex(experimental_api=False) as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run("Hello."))
    return [result.final_response, len(stage.wire.received("thread/settings/updated"))]


async def models(stage: Stage) -> Any:
    async with stage.codex() as codex:
        shown = (await now(codex.models())).data
        all_of_them = (await now(codex.models(include_hidden=True))).data
        answer = await now(
            codex._client.request_with_retry_on_overload("model/list", {}, response_model=ModelListResponse)
        )
    return {
        "some": len(shown) > 0,
        "defaults": sum(model.is_default for model in shown),
        "hidden": [model.id for model in shown if model.hidden],
        "superset": {model.id for model in shown} <= {model.id for model in all_of_them},
        "again": [model.id for model in answer.data] == [model.id for model in shown],
        "efforts": all(model.supported_reasoning_efforts for model in shown),
    }


async def account(stage: Stage) -> Any:
    stage.configure(auth=True)
    stage.model.enqueue_assistant_message("ok")
    stage.model.enqueue_assistant_message("ok")
    key = "sk-test-key-of-the-mock"
    async with stage.codex() as codex:
        before = await now(codex.account())
        await now(codex.login_api_key(key))
        during = await now(codex.account())
        thread = await now(codex.thread_start())
        await now(thread.run("Hello."))
    async with stage.codex() as codex:
        kept = await now(codex.account())
        thread = await now(codex.thread_start())
        await now(thread.run("Hello again."))
        await now(codex.logout())
        after = await now(codex.account())
    return {
        "accounts": [answer.account and answer.account.root.type for answer in (before, during, kept, after)],
        "needed": before.requires_openai_auth,
        "sent": [request.header("authorization") == f"Bearer {key}" for request in stage.model.requests()],
        "told": [note["success"] for note in stage.wire.received("account/login/completed")],
        "updated": [note["authMode"] for note in stage.wire.received("account/updated")],
    }


async def no_account(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        account = await now(codex.account())
        thread = await now(codex.thread_start())
        await now(thread.run("Hello."))
    return [account.account, account.requires_openai_auth, stage.model.single_request().header("authorization")]


async def browser_logins(stage: Stage) -> Any:
    """A browser login that is given up; the faces take turns, because the real server needs a fixed port for it."""
    seen = []
    for face in FACES:
        stage.face = face
        async with stage.codex() as codex:
            try:
                login = await now(codex.login_chatgpt())
            except CodexRpcError as error:
                seen.append({"refusal": error.code})
                continue
            cancelled = await now(login.cancel())
            completed = await now(login.wait())
        seen.append({"cancelled": cancelled.status.value, "success": completed.success})
    return seen


async def refusals(stage: Stage) -> Any:
    async with stage.codex() as codex:
        seen = {}
        requests: dict[str, tuple[str, dict[str, Any]]] = {
            "no such method": ("no/such/method", {}),
            "missing parameter": ("thread/read", {}),
            "wrong type": ("thread/read", {"threadId": 5}),
        }
        for name, (method, params) in requests.items():
            try:
                await now(codex._client.request(method, params, response_model=ModelListResponse))
            except InvalidRequestError as error:
                seen[name] = [error.code, error.message.partition(":")[0], is_retryable_error(error)]
        alive = len((await now(codex.models())).data) > 0
    return {**seen, "alive": alive}


async def overloaded(stage: Stage) -> Any:
    """A burst that may be more than the server takes: every request is answered, if only with a refusal."""
    async with stage.codex() as codex:
        for number in range(BURST):
            write(codex._client, {"id": f"burst-{number}", "method": "thread/loaded/list", "params": {}})
        answers = await stage.wire.wait_for_answers("burst-", BURST)
        errors = [error_of(stage.package, answer) for answer in answers if "error" in answer]
        alive = await now(
            codex._client.request_with_retry_on_overload("model/list", {}, response_model=ModelListResponse)
        )
    return {
        "answers": len(answers),
        "codes": sorted({error.code for error in errors}),
        "retryable": sorted({is_retryable_error(error) for error in errors}),
        "alive": len(alive.data) > 0,
    }


async def retried(stage: Stage) -> Any:
    """The helper of the SDK tries again, but not for ever, and only for an overload."""
    tries: list[int] = []

    def busy_twice() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ServerBusyError(-32001, "busy", {"codexErrorInfo": "server_overloaded"})
        return "done"

    return [retry_on_overload(busy_twice, initial_delay_s=0.0, jitter_ratio=0.0), len(tries)]


async def no_server(stage: Stage) -> Any:
    """A program that ends when it is spoken to, and one that is not there."""
    errors = []
    # One that ends before is not the same every time: the official SDK may find its pipe broken.
    ends = (sys.executable, "-c", "import sys; sys.stdin.readline()")
    for changes in ({"launch_args_override": ends}, {"codex_bin": str(stage.folder / "nothing")}):
        try:
            async with stage.codex(**changes):
                errors.append("none")
        except TransportClosedError:
            errors.append("TransportClosedError")
        except FileNotFoundError:
            errors.append("FileNotFoundError")
    return errors
