"""A scripted app-server over standard input and output, for what a good server never does.

    python fake_server.py DEED [MARKER]

It shakes hands, starts turns and ends them when they are interrupted; a turn whose text is `finish` ends at once, and
`thread/read` is never answered. When it is told or asked `test/deed`, it does its deed. What it reads is told, one
datagram for each message, to the abstract socket named by `FAKE_EARS`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

Json = dict[str, Any]


class Server:
    def __init__(self, deed: str) -> None:
        self.deed = deed
        self.turns = 0
        self.asked = 0
        self.held: list[Json] = []
        self.ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def say(self, *messages: Json) -> None:
        """In one write, as far as the pipe goes."""
        write(b"".join(json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in messages))

    def tell(self, method: str, **params: Any) -> None:
        self.say({"method": method, "params": params})

    def heard(self, message: Json) -> None:
        name = os.environ.get("FAKE_EARS")
        if name:
            brief = message if len(str(message)) < 10_000 else {"method": message.get("method")}
            self.ears.sendto(json.dumps(brief).encode(), f"\0{name}")

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.heard(message)
            self.take(message, message.get("method", ""), message.get("params") or {})
        if self.deed == "deaf":
            wait_for_ever()

    def take(self, message: Json, method: str, params: Json) -> None:
        if method == "initialize":
            self.initialize(message)
        elif method == "turn/start":
            self.turn_start(message, params)
        elif method == "turn/interrupt":
            self.say({"id": message["id"], "result": {}})
            if self.deed != "hold_completion":
                self.complete(params["threadId"], params["turnId"], "interrupted")
        elif method == "test/release":
            self.release(params)
        elif method == "test/ask":
            self.ask(params["count"])
        elif method == "test/echo":
            self.say({"id": message["id"], "result": params})
        elif method == "test/deed":
            DEEDS[self.deed](self, message)

    def initialize(self, message: Json) -> None:
        if self.deed == "mute":
            return
        if self.deed == "anonymous":
            self.say({"id": message["id"], "result": {}})
            return
        self.say({"id": message["id"], "result": {"userAgent": "fake/1.0"}})
        if self.deed == "blind":
            wait_for_ever()

    def turn_start(self, message: Json, params: Json) -> None:
        self.turns += 1
        turn_id = f"turn-{self.turns}"
        if self.deed in ("hold_start", "hold_completion") and self.turns == 1:
            self.held.append({**message, "turn": turn_id})
            return
        self.begin(message, params["threadId"], turn_id)
        text = params["input"][0]["text"]
        if text == "finish":
            self.complete(params["threadId"], turn_id, "completed")
        elif text in STRANGE:
            for line in STRANGE[text]:
                write(line.replace("TURN", turn_id).encode() + b"\n")

    def begin(self, message: Json, thread_id: str, turn_id: str, *, tell: bool = True) -> None:
        self.say({"id": message["id"], "result": {"turn": turn_of(turn_id, "inProgress")}})
        if tell:
            self.tell("turn/started", threadId=thread_id, turn=turn_of(turn_id, "inProgress"))

    def complete(self, thread_id: str, turn_id: str, status: str) -> None:
        item = {"type": "agentMessage", "id": f"item-{turn_id}", "text": f"said in {turn_id}", "phase": None}
        told = {"threadId": thread_id, "turnId": turn_id, "item": item, "completedAtMs": 1}
        self.say(
            {"method": "item/completed", "params": told},
            {"method": "turn/completed", "params": {"threadId": thread_id, "turn": turn_of(turn_id, status)}},
        )

    def release(self, params: Json) -> None:
        """What was held back: the answer to `turn/start`, or else the end of that turn, or both at once."""
        held = self.held[0]
        if params.get("completion"):
            self.complete(held["params"]["threadId"], held["turn"], "interrupted")
        elif "result" in params:
            self.say({"id": held["id"], "result": params["result"]})
        elif params.get("whole"):
            turn = turn_of(held["turn"], "inProgress")
            over = {"threadId": held["params"]["threadId"], "turn": turn_of(held["turn"], "completed")}
            self.say({"id": held["id"], "result": {"turn": turn}}, {"method": "turn/completed", "params": over})
        else:
            self.begin(held, held["params"]["threadId"], held["turn"], tell=self.deed != "hold_completion")

    def ask(self, count: int) -> None:
        for _ in range(count):
            self.asked += 1
            params = {
                "threadId": "thread",
                "turnId": "turn-1",
                "itemId": f"item-{self.asked}",
                "startedAtMs": 1,
                "command": "true",
            }
            self.say({"id": f"ask-{self.asked}", "method": "item/commandExecution/requestApproval", "params": params})


def turn_of(turn_id: str, status: str) -> Json:
    return {"id": turn_id, "items": [], "status": status}


def write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def wait_for_ever() -> None:
    while True:
        signal.pause()


def exit_with_seven(_: Server, message: Json) -> None:
    os.write(2, b"these are my last words\n")
    os._exit(7)


def killed(_: Server, message: Json) -> None:
    os.write(2, b"these are my last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def closes_output(_: Server, message: Json) -> None:
    os.write(2, b"these are my last words\n")
    os.close(1)
    wait_for_ever()


def sends(data: bytes) -> Any:
    def send(server: Server, message: Json) -> None:
        try:
            write(data)
        except BrokenPipeError:  # the client had enough
            wait_for_ever()

    return send


def dies_in_a_line(_: Server, message: Json) -> None:
    os.write(1, b'{"method":"turn/started","params":{"thre')
    exit_with_seven(_, message)


def answers_and_garbage(_: Server, message: Json) -> None:
    write(json.dumps({"id": message["id"], "result": {}}).encode() + b"\nthis is no JSON\n")


def answers_with_a_number(server: Server, message: Json) -> None:
    server.say({"id": message["id"], "result": 5})


def leaves_an_heir(_: Server, message: Json) -> None:
    """Dies while a child of its own holds the standard streams."""
    if os.fork() == 0:
        wait_for_ever()
    exit_with_seven(_, message)


def leaves_a_talker(_: Server, message: Json) -> None:
    """Dies while a child of its own writes to its standard output for ever: blank lines, which say nothing."""
    if os.fork() == 0:
        while True:
            write(b"\n" * (1 << 16))
    exit_with_seven(_, message)


def leaves_a_mourner(_: Server, message: Json) -> None:
    """Dies while a child of its own holds standard error, so that the end of that is a while in coming."""
    if os.fork() == 0:
        os.close(0)
        os.close(1)
        wait_for_ever()
    exit_with_seven(_, message)


def noisy(server: Server, message: Json) -> None:
    """A mebibyte of complaints."""
    for _ in range(16 * 1024):
        os.write(2, b"x" * 63 + b"\n")
    server.say({"id": message["id"], "result": {}})


def tells_secrets(_: Server, message: Json) -> None:
    words = [os.environ[name] for name in ("FAKE_API_KEY", "FAKE_PASSWORD")]
    text = f"keys {words}; sk-proj-abcdefgh12345678 and Authorization: Bearer abc.def-ghi_jkl\nthe plain end\n"
    os.write(2, text.encode())
    os._exit(7)


def has_children(server: Server, message: Json) -> None:
    """A child, one in a session of its own, and a daemon that was forked twice; all deaf to SIGTERM."""
    import subprocess

    marker = sys.argv[2]
    child = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()  # {marker}"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen([sys.executable, "-c", child], **quiet)  # type: ignore[call-overload]
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True, **quiet)  # type: ignore[call-overload]
    if (between := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            devnull = os.open("/dev/null", os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(devnull, descriptor)
            os.execv(sys.executable, [sys.executable, "-c", child])
        os._exit(0)
    os.waitpid(between, 0)
    server.say({"id": message["id"], "result": {}})


# Lines of turns that a newer server, or one that is not quite right, might send.
STRANGE = {
    "strange": [
        "",
        '{"method":"turn/dreamt","params":{"threadId":"thread","turnId":"TURN","dream":[1,{"of":"sheep"}]}}',
        '{"method":"turn/dreamt/again","params":{"turn":{"id":"TURN"}}}',
        '{"method":"server/greets"}',
        '{"method":"server/greets","params":null}',
        '{"method":"server/greets","params":[1,2]}',
        '{"method":"item/completed","params":{"threadId":"thread","turnId":"TURN","completedAtMs":1,'
        '"item":{"type":"hologram","id":"h","depth":3}}}',
        '{"method":"item/completed","params":{"turnId":"TURN","item":"not an item"}}',
        '{"jsonrpc":"2.0","method":"item/completed","trace":{"a":1},"params":{"threadId":"thread","turnId":"TURN",'
        '"completedAtMs":1,"mood":"good","item":{"type":"agentMessage","id":"m","text":"hello","phase":null,"new":1}}}',
        '{"id":"q1","method":"item/hologram/requestApproval","params":{"threadId":"thread"}}',
        '{"id":"q2","method":"item/commandExecution/requestApproval","params":{"nothing":"here"}}',
        '{"id":99999,"result":{}}',
        '{"id":"nobody","error":{"code":1,"message":"m"}}',
        '{"method":"turn/completed","params":{"threadId":"thread","weather":"fine",'
        '"turn":{"id":"TURN","items":[],"status":"completed","colour":"blue"}}}',
    ],
    "new status": [
        '{"method":"turn/completed","params":{"threadId":"thread","turn":{"id":"TURN","items":[],"status":"dreaming"}}}',
    ],
    "no shape": [
        '{"method":"turn/completed","params":{"threadId":"thread","turn":{"id":"TURN","status":7}}}',
    ],
}
DEEP = b"[" * 100_000 + b"]" * 100_000
DEEDS = {
    "exit": exit_with_seven,
    "kill": killed,
    "close": closes_output,
    "garbage": sends(b"this is no JSON\n"),
    "not_utf8": sends(b'{"method":"item/completed","params":{"turnId":"\xff\xfe"}}\n'),
    "deep": sends(b'{"method":"item/completed","params":{"x":' + DEEP + b"}}\n"),
    "array": sends(b"[1, 2]\n"),
    "long_line": sends(b"x" * (1 << 20) + b"\n"),
    "half_line": dies_in_a_line,
    "answer_and_garbage": answers_and_garbage,
    "number": answers_with_a_number,
    "heir": leaves_an_heir,
    "talker": leaves_a_talker,
    "mourner": leaves_a_mourner,
    "noisy": noisy,
    "secrets": tells_secrets,
    "family": has_children,
    "deaf": has_children,
}


def main() -> None:
    deed = sys.argv[1]
    if deed == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Server(deed).serve()


if __name__ == "__main__":
    main()
