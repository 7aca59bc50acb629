"""What a client does to a running process: stdin, signals, terminate, and the terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.exec_client import ExecClient, error_of
from kit.processes import processes_left, processes_with, state_of
from kit.wire_client import Json


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


LOOP = "echo ready; while :; do sleep 0.02; done"


# --- stdin ---


def test_a_pipe_takes_writes_in_order(client: ExecClient, tmp_path: Path) -> None:
    client.start("cat", ["cat"], tmp_path, pipeStdin=True)
    for number in range(50):
        assert client.write("cat", b"%d\n" % number, str(number)) == "accepted"
    assert client.write("cat", b"", "empty") == "accepted"
    assert client.call("process/closeStdin", {"processId": "cat"}) == {}
    client.story("cat")
    assert client.output("cat") == b"".join(b"%d\n" % number for number in range(50))
    assert client.exit_code("cat") == 0


def test_a_repeated_write_id_is_not_written_again(client: ExecClient, tmp_path: Path) -> None:
    for name in ("one", "two"):
        client.start(name, ["cat"], tmp_path, pipeStdin=True)
        for text in (b"first", b"second"):
            assert client.write(name, text, "same") == "accepted"
        assert client.write(name, b"|third", "other") == "accepted"
        client.call("process/closeStdin", {"processId": name})
        client.story(name)
        assert client.output(name) == b"first|third", "ids are per process"


def test_without_stdin_the_child_reads_the_end(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; if read line; then echo got; else echo eof; fi"
    client.start("p", sh(script), tmp_path)
    assert client.write("p", b"ignored\n", "a") == "stdinClosed"
    assert client.call("process/closeStdin", {"processId": "p"}) == {}
    go.touch()
    client.story("p")
    assert client.output("p") == b"eof\n"
    assert client.write("p", b"late\n", "b") == "stdinClosed"


def test_writes_after_close_stdin(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    client.start("p", sh(f"cat; while [ ! -e {go} ]; do sleep 0.02; done"), tmp_path, pipeStdin=True)
    client.call("process/closeStdin", {"processId": "p"})
    assert client.write("p", b"x", "1") == "stdinClosed"
    assert client.call("process/closeStdin", {"processId": "p"}) == {}, "again is harmless"
    go.touch()
    assert client.exit_code("p") == 0
    assert client.output("p") == b""


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_a_write_after_the_exit_fails(client: ExecClient, tmp_path: Path, tty: bool) -> None:
    client.run("p", ["true"], tmp_path, pipeStdin=True, tty=tty)
    code, text = client.failure("process/write", {"processId": "p", "chunk": "eA==", "writeId": "w"})
    assert code == -32603
    assert "failed to write to process stdin" in text


def test_a_child_that_closed_its_stdin_is_not_disturbed(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"exec 0<&-; echo ready; while [ ! -e {go} ]; do sleep 0.02; done; exit 4"
    client.start("p", sh(script), tmp_path, pipeStdin=True)
    client.wait_for_output("p", b"ready")
    assert client.write("p", b"x", "1") == "accepted"
    assert client.write("p", b"x", "2") in ("accepted", "stdinClosed")
    go.touch()
    assert client.exit_code("p") == 4


def test_a_child_that_never_reads_blocks_only_its_own_writer(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("deaf", ["sleep", marker], tmp_path, pipeStdin=True)
    client.start("cat", ["cat"], tmp_path, pipeStdin=True)
    chunk = "A" * (64 << 10)
    writes = [
        client.request("process/write", {"processId": "deaf", "chunk": chunk, "writeId": str(number)})
        for number in range(40)
    ]
    assert client.write("cat", b"hello", "1") == "accepted"
    client.wait_for_output("cat", b"hello")
    assert client.call("process/terminate", {"processId": "deaf", "graceMs": 0}) == {"running": True}
    answers = [client.reply_to(write) for write in writes]
    assert answers[0]["result"] == {"status": "accepted"}
    # The broken pipe and the exit are two pieces of news, and either may come first.
    refused = answers[-1].get("result") == {"status": "stdinClosed"} or error_of(answers[-1])[0] == -32603
    assert refused, "a write that the child never took is not accepted in the end"
    client.call("process/closeStdin", {"processId": "cat"})


# --- signals ---


@pytest.mark.parametrize(
    ("name", "trap"),
    [
        ("interrupt", "INT"),
        ("terminate", "TERM"),
        ("hangup", "HUP"),
        ("quit", "QUIT"),
        ("usr1", "USR1"),
        ("usr2", "USR2"),
    ],
)
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_signals(client: ExecClient, tmp_path: Path, name: str, trap: str, tty: bool) -> None:
    client.start("p", sh(f"trap 'echo got; exit 3' {trap}; {LOOP}"), tmp_path, tty=tty)
    client.wait_for_output("p", b"ready")
    assert client.call("process/signal", {"processId": "p", "signal": name}) == {}
    story = client.story("p")
    assert client.exit_code("p") == 3
    assert b"got" in client.output("p")
    assert story[-2]["method"] == "process/exited", "what the trap wrote comes before the exit"
    assert client.call("process/signal", {"processId": "p", "signal": name}) == {}, "also when it has ended"


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
@pytest.mark.parametrize(("name", "code"), [("interrupt", 130), ("kill", 137)])
def test_death_by_signal(client: ExecClient, tmp_path: Path, marker: str, tty: bool, name: str, code: int) -> None:
    client.start("p", ["sleep", marker], tmp_path, tty=tty)
    client.call("process/signal", {"processId": "p", "signal": name})
    assert client.exit_code("p") == code


def test_signals_reach_the_group(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", sh(f"echo ready; sleep {marker}; echo not reached"), tmp_path)
    client.wait_for_output("p", b"ready")
    client.call("process/signal", {"processId": "p", "signal": "kill"})
    client.story("p")
    assert processes_left(marker) == []


def test_stop_and_continue(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", ["sleep", marker], tmp_path)
    while not (pids := processes_with(marker)):  # its arguments show a moment after it has started
        client.call("environment/status")
    (pid,) = pids
    client.call("process/signal", {"processId": "p", "signal": "stop"})
    while state_of(pid) != "T":
        client.call("environment/status")
    client.call("process/signal", {"processId": "p", "signal": "continue"})
    while state_of(pid) == "T":
        client.call("environment/status")
    client.call("process/signal", {"processId": "p", "signal": "terminate"})
    assert client.exit_code("p") == 143


# --- terminate ---


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_terminate_lets_a_process_end_by_itself(client: ExecClient, tmp_path: Path, tty: bool) -> None:
    client.start("p", sh(f"trap 'echo bye; exit 9' TERM; {LOOP}"), tmp_path, tty=tty)
    client.wait_for_output("p", b"ready")
    assert client.call("process/terminate", {"processId": "p", "graceMs": 60_000}) == {"running": True}
    client.story("p")
    assert client.exit_code("p") == 9
    assert b"bye" in client.output("p")
    assert client.call("process/terminate", {"processId": "p"}) == {"running": False}


@pytest.mark.parametrize("params", [{}, {"graceMs": 0}, {"graceMs": 50}], ids=str)
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_terminate_kills_what_does_not_end(client: ExecClient, tmp_path: Path, params: Json, tty: bool) -> None:
    client.start("p", sh(f"trap '' TERM HUP INT; {LOOP}"), tmp_path, tty=tty)
    client.wait_for_output("p", b"ready")
    assert client.call("process/terminate", {"processId": "p", **params}) == {"running": True}
    client.story("p")
    assert client.exit_code("p") == 137


def test_terminate_finds_all_descendants(client: ExecClient, tmp_path: Path, marker: str) -> None:
    script = f"sleep {marker} & (setsid sleep {marker} &); (trap '' TERM; setsid sleep {marker}) & echo ready; wait"
    client.start("p", sh(script), tmp_path)
    client.wait_for_output("p", b"ready")
    assert client.call("process/terminate", {"processId": "p", "graceMs": 20}) == {"running": True}
    assert client.call("process/terminate", {"processId": "p"})["running"] in (True, False)
    client.story("p")
    assert processes_left(marker) == []


def test_terminate_after_the_exit_ends_what_is_left(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", sh(f"(setsid sleep {marker} &); exit 0"), tmp_path)
    assert client.exit_code("p") == 0
    assert client.call("process/terminate", {"processId": "p"}) == {"running": False}
    client.story("p")
    assert processes_left(marker) == []


# --- terminal ---


def test_a_terminal(client: ExecClient, tmp_path: Path) -> None:
    script = "tty; stty size; cut -d' ' -f5,6,8 /proc/$$/stat; echo go; read line; printf 'from-stdin:%s\\n' $line"
    client.start("p", sh(script), tmp_path, tty=True)
    client.wait_for_output("p", b"go\r\n")
    assert client.write("p", b"hello\n", "t1") == "accepted"
    story = client.story("p")
    assert {event["params"]["stream"] for event in story[:-2]} == {"pty"}
    lines = client.output("p").decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/")
    assert lines[1] == "24 80"
    assert len(set(lines[2].split())) == 1, "its group is the session and in the foreground: a controlling terminal"
    assert lines[3:] == ["go", "hello", "from-stdin:hello", ""], "echo is on"


def test_keys_of_a_terminal(client: ExecClient, tmp_path: Path) -> None:
    client.start("int", sh(f"trap 'echo INT; exit 3' INT; {LOOP}"), tmp_path, tty=True)
    client.wait_for_output("int", b"ready")
    assert client.write("int", b"\x03", "x") == "accepted"
    assert client.exit_code("int") == 3
    client.start("eof", ["cat"], tmp_path, tty=True)
    assert client.write("eof", b"line\n", "x") == "accepted"
    assert client.call("process/closeStdin", {"processId": "eof"}) == {}
    assert client.exit_code("eof") == 0


def test_resize(client: ExecClient, tmp_path: Path) -> None:
    client.start("p", sh(f"trap 'stty size; exit 0' WINCH; {LOOP}"), tmp_path, tty=True)
    client.wait_for_output("p", b"ready")
    assert client.call("process/resize", {"processId": "p", "rows": 50, "cols": 132}) == {}
    client.story("p")
    assert b"50 132\r\n" in client.output("p")
    assert client.call("process/resize", {"processId": "p", "rows": 1, "cols": 1}) == {}, "too late is harmless"


def test_resize_needs_a_terminal(client: ExecClient, tmp_path: Path) -> None:
    client.start("p", ["cat"], tmp_path, pipeStdin=True)
    code, text = client.failure("process/resize", {"processId": "p", "rows": 2, "cols": 2})
    assert code == -32600
    assert "terminal" in text
    client.call("process/terminate", {"processId": "p"})


def test_a_terminal_hangs_up_with_its_process(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", sh(f"sleep {marker} & echo ready; exit 0"), tmp_path, tty=True)
    assert client.exit_code("p") == 0
    client.call("process/terminate", {"processId": "p"})
    client.story("p")
    assert processes_left(marker) == []


def test_a_process_that_closes_its_terminal_lives_on(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"touch closed; while [ ! -e {go} ]; do sleep 0.02; done"
    client.start("p", sh(f"exec <&- >&- 2>&-; {wait}; echo on >/dev/tty; exit 5"), tmp_path, tty=True)
    while not (tmp_path / "closed").exists():
        client.call("environment/status")
    assert client.call("process/read", {"processId": "p"})["exited"] is False
    go.touch()
    assert client.story("p")[-1]["method"] == "process/closed"
    assert (client.exit_code("p"), client.output("p")) == (5, b"on\r\n")


def test_the_server_is_not_in_the_way_of_job_control(client: ExecClient, tmp_path: Path) -> None:
    """The terminal is the child's and not the server's: the server's own group is never its foreground."""
    code, output = client.run("p", sh("ps -o tpgid= -p $$; echo $$"), tmp_path, tty=True)
    foreground, own = output.split()
    assert (code, int(foreground)) == (0, int(own))
    assert int(own) != os.getpgid(0)
