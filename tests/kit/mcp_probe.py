"""A small MCP server for tests, without the `mcp` package: JSON lines on standard input and output. It starts in the
time that Python needs.

    python tests/kit/mcp_probe.py [--http] [--record FILE] [--fault FAULT] [--pages N] [--tools N] …

With `--record` every message, and the process's own facts, are written to a file as `{"dir": …, "msg": …}`.
A fault: `exit` at once, `hang` in initialize, `hang-list` in tools/list, `stubborn` ignores the end of input and
SIGTERM, `asks` the user when the roots have changed, `odd-resources` lists what is none. What else can go wrong is a
tool.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

TEXT_SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "description": "what to say"}}}
# A picture of one pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


class RpcFailure(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Probe:
    """The server itself, apart from how its messages travel: `send` is given each that goes out."""

    def __init__(self, options: argparse.Namespace, send: Callable[[dict[str, Any]], None]) -> None:
        self.options = options
        self._send = send
        self._lock = threading.Lock()
        self._last_id = 0
        self._answers: dict[Any, tuple[threading.Event, list[dict[str, Any]]]] = {}
        self._cancelled: dict[Any, threading.Event] = {}
        self.extra_tools: list[str] = []
        self.hidden: set[str] = set()
        self.listed = threading.Event()
        self.streams: Any = None  # over HTTP

    def set_send(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send

    # --- messages ---

    def record(self, direction: str, message: Any) -> None:
        if self.options.record:
            with self._lock, open(self.options.record, "a", encoding="utf-8") as file:
                file.write(json.dumps({"dir": direction, "msg": message}) + "\n")

    def send(self, message: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", **message}
        self.record("srv2cli", message)
        self._send(message)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"method": method} if params is None else {"method": method, "params": params})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the client, and wait for its answer."""
        with self._lock:
            self._last_id += 1
            request_id = f"probe-{self._last_id}"
        answered, box = self._answers[request_id] = (threading.Event(), [])
        self.send({"id": request_id, "method": method, "params": params})
        answered.wait()
        return box[0]

    def receive(
        self,
        message: dict[str, Any],
        prepare: Callable[[], None] = lambda: None,
        answer: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """One message of the client; a request is answered from a thread of its own, which is prepared first."""
        self.record("cli2srv", message)
        if "method" not in message:
            waiting = self._answers.pop(message["id"], None)
            if waiting is not None:
                waiting[1].append(message)
                waiting[0].set()
        elif message["method"] == "notifications/roots/list_changed" and self.options.fault == "asks":
            params = {"message": "Anybody?", "requestedSchema": {"type": "object"}}
            asking = threading.Thread(target=lambda: self.request("elicitation/create", params), daemon=True)
            asking.start()
        elif message["method"] == "notifications/cancelled":
            cancelled = self._cancelled.get(message["params"]["requestId"])
            if cancelled is not None:
                cancelled.set()
        elif "id" in message:
            cancelled = self._cancelled[message["id"]] = threading.Event()
            threading.Thread(target=self._serve, args=(message, cancelled, prepare, answer), daemon=True).start()

    def _serve(
        self,
        message: dict[str, Any],
        cancelled: threading.Event,
        prepare: Callable[[], None],
        answer: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        prepare()
        try:
            result = self._result(message["id"], message["method"], message.get("params") or {}, cancelled)
        except RpcFailure as failure:
            error: dict[str, Any] = {"code": failure.code, "message": failure.message}
            if failure.data is not None:
                error["data"] = failure.data
            self._reply({"id": message["id"], "error": error}, answer)
            return
        if result is not None and result is not NO_ANSWER and not cancelled.is_set():
            self._reply({"id": message["id"], "result": result}, answer)

    def _reply(self, reply: dict[str, Any], answer: Callable[[dict[str, Any]], None] | None) -> None:
        if answer is None:
            self.send(reply)
        else:
            answer({"jsonrpc": "2.0", **reply})

    # --- what it can do ---

    def _result(
        self, request_id: Any, method: str, params: dict[str, Any], cancelled: threading.Event
    ) -> dict[str, Any] | None:
        fault = self.options.fault
        match method:
            case "initialize":
                if fault == "hang":
                    return None
                return {
                    "protocolVersion": self.options.version or params["protocolVersion"],
                    "capabilities": {
                        "tools": {"listChanged": True},
                        "resources": {"subscribe": True},
                        "prompts": {},
                        "logging": {},
                    },
                    "serverInfo": {"name": "probe", "title": "Probe server", "version": "1.0"},
                    "instructions": "Use the probe tools wisely.",
                }
            case "ping":
                return {}
            case "tools/list":
                return None if fault == "hang-list" else self._list_tools(params)
            case "tools/call":
                return self._call(request_id, params, cancelled)
            case "resources/list":
                one = {"uri": "probe://one", "name": "one", "mimeType": "text/plain"}
                odd = fault == "odd-resources"
                return {"resources": [5, {**one, "server": "another"}] if odd else [one]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": "probe://{name}", "name": "any"}]}
            case "resources/read":
                if params["uri"] != "probe://one":
                    raise RpcFailure(-32002, "Resource not found", {"uri": params["uri"]})
                return {"contents": [{"uri": "probe://one", "mimeType": "text/plain", "text": "the first"}]}
            case "prompts/list":
                return {
                    "prompts": [
                        {"name": "greet", "arguments": [{"name": "who", "required": True}, {"name": "how"}]},
                        {"name": "odd name", "title": "All kinds of content"},
                        {"name": ["no", "name"]},
                    ]
                }
            case "prompts/get":
                return self._prompt(params["name"], params.get("arguments") or {})
        raise RpcFailure(-32601, f"no method {method}")

    def _prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        if name == "odd name":
            found = {"uri": "probe://one", "mimeType": "text/plain", "text": "the first"}
            contents: list[tuple[str, dict[str, Any]]] = [
                ("user", {"type": "text", "text": "Look at this."}),
                ("user", {"type": "resource", "resource": found}),
                ("user", {"type": "image", "data": PNG, "mimeType": "image/png"}),
                ("assistant", {"type": "text", "text": "I see."}),
            ]
            return {"messages": [{"role": role, "content": content} for role, content in contents]}
        if name != "greet" or "who" not in arguments:
            raise RpcFailure(-32602, f"no prompt {name} with {sorted(arguments)}")
        how = f" {arguments['how']}" if "how" in arguments else ""
        text = {"type": "text", "text": f"Greet {arguments['who']}{how}."}
        return {"description": "a greeting", "messages": [{"role": "user", "content": text}]}

    def _list_tools(self, params: dict[str, Any]) -> dict[str, Any]:
        hints: dict[str, dict[str, Any]] = {
            "echo": {"readOnlyHint": True, "title": "Echo it"},
            "write_it": {"destructiveHint": True},
            "safe": {"destructiveHint": False, "openWorldHint": False},
        }
        tools = [
            {
                "name": name,
                "description": f"{name} tool",
                "inputSchema": TEXT_SCHEMA,
                **({"annotations": hints[name]} if name in hints else {}),
            }
            for name in (*TOOLS, *self.extra_tools, *(f"many_{index}" for index in range(self.options.tools)))
            if name not in self.hidden
        ]
        self.listed.set()
        pages = self.options.pages
        if pages <= 1:
            return {"tools": tools}
        page = int(params.get("cursor") or 0)
        size = -(-len(tools) // pages)
        found: dict[str, Any] = {"tools": tools[page * size : (page + 1) * size]}
        if page + 1 < pages:
            found["nextCursor"] = str(page + 1)
        return found

    def _call(self, request_id: Any, params: dict[str, Any], cancelled: threading.Event) -> dict[str, Any] | None:
        tool = TOOLS.get(params["name"])
        if tool is None:
            if params["name"] in self.extra_tools or params["name"].startswith("many_"):
                return text_result(params["name"])
            raise RpcFailure(-32602, f"Unknown tool: {params['name']}")
        text = str((params.get("arguments") or {}).get("text", ""))
        token = (params.get("_meta") or {}).get("progressToken")
        return tool(self, Call(request_id, text, token, cancelled))


class Call:
    def __init__(self, request_id: Any, text: str, token: Any, cancelled: threading.Event) -> None:
        self.id, self.text, self.token, self.cancelled = request_id, text, token, cancelled


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def _sleep(probe: Probe, call: Call) -> dict[str, Any]:
    """Until it is cancelled, or for so many seconds."""
    cancelled = call.cancelled.wait(float(call.text or 1000))
    return text_result("cancelled" if cancelled else "slept")


def _progress(probe: Probe, call: Call) -> dict[str, Any]:
    steps = int(call.text or 3)
    if call.token is not None:
        for step in range(1, steps + 1):
            probe.notify(
                "notifications/progress",
                {"progressToken": call.token, "progress": step, "total": steps, "message": f"step {step}"},
            )
    return text_result(f"{steps} steps")


def _die(probe: Probe, call: Call) -> dict[str, Any]:
    os._exit(int(call.text or 3))


def _rpcerror(probe: Probe, call: Call) -> dict[str, Any]:
    raise RpcFailure(-32602, "bad arguments here", {"x": 1})


def _more(probe: Probe, call: Call) -> dict[str, Any]:
    """Another tool from now on."""
    probe.extra_tools.append(call.text or "added")
    probe.notify("notifications/tools/list_changed")
    return text_result("ok")


def _vanish(probe: Probe, call: Call) -> dict[str, Any]:
    """It is no tool any more while it runs; the answer comes when the client has the new list."""
    probe.hidden.add("vanish")
    probe.listed.clear()
    probe.notify("notifications/tools/list_changed")
    probe.listed.wait(float(call.text or 0))
    return text_result("gone")


def _ask(probe: Probe, call: Call) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = {"message": call.text or "Who are you?", "mode": "form", "requestedSchema": schema}
    return text_result(json.dumps(_said(probe.request("elicitation/create", params))))


def _late(probe: Probe, call: Call) -> dict[str, Any]:
    """A step behind the answer, and the answer again."""
    for _ in range(2):
        probe.send({"id": call.id, "result": text_result("ok")})
        probe.notify("notifications/progress", {"progressToken": call.token, "progress": 1, "message": "too late"})
    return NO_ANSWER


def _ask_url(probe: Probe, call: Call) -> dict[str, Any]:
    params = {"message": "Look here", "mode": "url", "url": "https://example.com/x", "elicitationId": "e1"}
    return text_result(json.dumps(_said(probe.request("elicitation/create", params))))


def _sample(probe: Probe, call: Call) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": call.text or "hi"}}]
    return text_result(
        json.dumps(_said(probe.request("sampling/createMessage", {"messages": messages, "maxTokens": 100})))
    )


def _said(answer: dict[str, Any]) -> Any:
    return answer.get("result", answer.get("error"))


def _log(probe: Probe, call: Call) -> dict[str, Any]:
    probe.notify("notifications/message", {"level": "warning", "logger": "probe", "data": call.text})
    return text_result("ok")


def _stderr(probe: Probe, call: Call) -> dict[str, Any]:
    print(call.text, file=sys.stderr, flush=True)
    return text_result("ok")


def _garbage(probe: Probe, call: Call) -> dict[str, Any]:
    """What is no message, and answers that nobody has asked for."""
    lines = (b"no json", b"[]", b"{}", b'{"id":1', b'"x"', b"null", b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}')
    strange = (b'{"jsonrpc":"2.0","id":987654,"result":{}}', b'{"jsonrpc":"2.0","id":"x","result":{}}')
    for line in (*lines, *strange, b"\xff\xfe\x00"):
        write_raw(line + b"\n")
    return text_result("ok")


def _flood(probe: Probe, call: Call) -> dict[str, Any]:
    """So many notifications of each kind."""
    for kind in ("message", "tools/list_changed", "nobody/knows", "progress"):
        params = {"level": "info", "data": "x", "progressToken": call.token, "progress": 1}
        line = json.dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}", "params": params}).encode() + b"\n"
        block = line * 1000
        for _ in range(int(call.text or 10)):
            write_raw(block)
    return text_result("ok")


def _ask_much(probe: Probe, call: Call) -> dict[str, Any]:
    for index in range(int(call.text or 1000)):
        probe.send({"id": f"much-{index}", "method": "elicitation/create", "params": {"message": "?"}})
    return text_result("ok")


def _endless(probe: Probe, call: Call) -> dict[str, Any]:
    write_raw(b'{"jsonrpc": "2.0", "method": "')
    while True:
        write_raw(b"x" * 65536)


def _big(probe: Probe, call: Call) -> dict[str, Any]:
    return text_result("x" * int(call.text or 1_000_000))


def _wide(probe: Probe, call: Call) -> dict[str, Any]:
    """A result of very many values."""
    values = b",".join([b"[]"] * int(call.text or 1_000_000))
    write_raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":[%s]}}\n' % (call.id, values))
    return NO_ANSWER


def _deep(probe: Probe, call: Call) -> dict[str, Any]:
    depth = int(call.text or 100_000)
    nested = b"[" * depth + b"]" * depth
    write_raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}\n' % (call.id, nested))
    return NO_ANSWER


def _surrogate(probe: Probe, call: Call) -> dict[str, Any]:
    write_raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\\ud800b\xffc"}]}}\n' % call.id)
    return NO_ANSWER


def _environment(probe: Probe, call: Call) -> dict[str, Any]:
    facts = {"pid": os.getpid(), "cwd": os.getcwd(), "env": dict(os.environ)}
    return text_result(json.dumps(facts))


def _drop(probe: Probe, call: Call) -> dict[str, Any]:
    """Over HTTP: the stream is cut so many times before the answer."""
    for _ in range(int(call.text or 1)):
        probe.streams.local.stream.put("drop")
    return text_result("resumed")


def _forget(probe: Probe, call: Call) -> dict[str, Any]:
    """Over HTTP: from now on the session is not known."""
    probe.streams.session = None
    return text_result("ok")


NO_ANSWER: dict[str, Any] = {}
TOOLS: dict[str, Callable[[Probe, Call], dict[str, Any] | None]] = {
    "echo": lambda probe, call: text_result(call.text),
    "sleep": _sleep,
    "progress": _progress,
    "image": lambda probe, call: {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "audio": lambda probe, call: {
        "content": [{"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}]
    },
    "structured": lambda probe, call: text_result("ignored", structuredContent={"n": 1}),
    "iserror": lambda probe, call: text_result("it went wrong", isError=True),
    "link": lambda probe, call: {"content": [{"type": "resource_link", "uri": "probe://one", "name": "one"}]},
    "embedded": lambda probe, call: {
        "content": [{"type": "resource", "resource": {"uri": "probe://one", "text": "the first"}}]
    },
    "empty": lambda probe, call: {"content": []},
    "big": _big,
    "rpcerror": _rpcerror,
    "die": _die,
    "more": _more,
    "vanish": _vanish,
    "ask": _ask,
    "ask_url": _ask_url,
    "late": _late,
    "sample": _sample,
    "roots": lambda probe, call: text_result(json.dumps(_said(probe.request("roots/list", {})))),
    "log": _log,
    "stderr": _stderr,
    "environment": _environment,
    "write_it": lambda probe, call: text_result("written"),
    "safe": lambda probe, call: text_result("safe"),
    "odd.name-x/y z": lambda probe, call: text_result("odd"),
    "garbage": _garbage,
    "flood": _flood,
    "ask_much": _ask_much,
    "endless": _endless,
    "wide": _wide,
    "deep": _deep,
    "surrogate": _surrogate,
    "drop": _drop,
    "forget": _forget,
}
_writing = threading.Lock()


def write_raw(data: bytes) -> None:
    with _writing:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--fault", default="")
    parser.add_argument("--version")
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--http", action="store_true", help="print a port, and listen there")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="answer with documents, not with streams")
    parser.add_argument("--token")
    return parser.parse_args()


def main() -> None:
    options = _read_options()
    if options.fault == "exit":
        print("it cannot start today", file=sys.stderr, flush=True)
        sys.exit(7)
    if options.fault == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    probe = Probe(options, lambda message: write_raw(json.dumps(message).encode() + b"\n"))
    probe.record("proc", {"pid": os.getpid(), "cwd": os.getcwd(), "env": dict(os.environ)})
    if options.http:
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        from kit.mcp_probe_http import serve

        serve(probe, options.port, lambda port: print(port, flush=True))
    for line in sys.stdin.buffer:
        probe.receive(json.loads(line))
    while options.fault == "stubborn":
        time.sleep(1000)


if __name__ == "__main__":
    main()
