"""The life of a process as its client sees it: start, numbered events, exit, close, and reading it all again."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.exec_client import ExecClient, connected, error_of, numbers, start_params
from kit.processes import child_of, processes_left
from kit.server_process import ServerProcess
from kit.wire_client import Json


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def methods(story: list[Json]) -> list[str]:
    return [event["method"].removeprefix("process/") for event in story]


# --- events ---


def test_the_story_of_a_process(client: ExecClient, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    script = f"printf 'event output\\n'; {wait.format(one)}; printf 'event err\\n' >&2; {wait.format(two)}; exit 7"
    assert client.start("p", sh(script), tmp_path) == {"processId": "p", "sandboxType": "none"}
    client.wait_for_output("p", b"event output\n")
    one.touch()
    client.wait_for_output("p", b"event err\n")
    two.touch()
    assert client.story("p") == [
        {
            "method": "process/output",
            "params": {"processId": "p", "seq": 1, "stream": "stdout", "chunk": "ZXZlbnQgb3V0cHV0Cg=="},
        },
        {
            "method": "process/output",
            "params": {"processId": "p", "seq": 2, "stream": "stderr", "chunk": "ZXZlbnQgZXJyCg=="},
        },
        {"method": "process/exited", "params": {"processId": "p", "seq": 3, "exitCode": 7, "sandboxDenied": False}},
        {"method": "process/closed", "params": {"processId": "p", "seq": 4}},
    ]


def test_events_leave_in_order_and_output_comes_before_the_exit(client: ExecClient, tmp_path: Path) -> None:
    script = sh("for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done; exit 3")
    names = [f"p{number}" for number in range(60)]
    requests = [client.request("process/start", start_params(name, script, tmp_path)) for name in names]
    for request in requests:
        assert "result" in client.reply_to(request)
    for name in names:
        story = client.story(name)
        assert numbers(story) == list(range(1, len(story) + 1))
        kinds = methods(story)
        assert kinds == ["output"] * (len(story) - 2) + ["exited", "closed"]
        assert client.exit_code(name) == 3
        for stream, word in (("stdout", b"out"), ("stderr", b"err")):
            chunks = [e["params"]["chunk"] for e in story if e["params"].get("stream") == stream]
            assert b"".join(map(base64.b64decode, chunks)) == b"".join(b"%s%d\n" % (word, i) for i in range(1, 6))


def test_no_event_comes_before_the_reply_to_the_start(client: ExecClient, tmp_path: Path) -> None:
    for number in range(20):
        client.told.clear()
        client.start(f"p{number}", ["echo", "fast"], tmp_path)
        assert client.told == []
        client.story(f"p{number}")


def test_exit_is_not_the_end_of_output(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = f"(while [ ! -e {go} ]; do sleep 0.02; done; echo late) &"
    client.start("p", sh(f"echo first; {late} exit 5"), tmp_path)
    assert client.wait_for_process("process/exited", "p")["exitCode"] == 5
    reading = client.request("process/read", {"processId": "p", "afterSeq": 2, "waitMs": 60000})
    assert client.call("process/terminate", {"processId": "other"}) == {"running": False}
    go.touch()
    assert methods(client.story("p")) == ["output", "exited", "output", "closed"]
    assert client.reply_to(reading)["result"]["exited"] is True


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("exit 300", 44),
        ("kill -9 $$", 137),
        ("kill -INT $$", 130),
        ("kill -TERM $$", 143),
    ],
)
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_exit_codes(client: ExecClient, tmp_path: Path, script: str, code: int, tty: bool) -> None:
    assert client.run("p", sh(script), tmp_path, tty=tty)[0] == code


def test_the_whole_output_is_pushed_and_what_reading_misses_is_told(client: ExecClient, tmp_path: Path) -> None:
    client.start("p", ["head", "-c", "5000000", "/dev/zero"], tmp_path)
    story = client.story("p")
    assert numbers(story) == list(range(1, len(story) + 1))
    assert client.output("p") == bytes(5_000_000)
    read = client.call("process/read", {"processId": "p"})
    kept = sum(len(base64.b64decode(chunk["chunk"])) for chunk in read["chunks"])
    assert 1 << 19 < kept <= 1 << 20
    first = read["chunks"][0]["seq"]
    assert read["evicted"] == {"firstSeq": 1, "lastSeq": first - 1}
    assert "evicted" not in client.call("process/read", {"processId": "p", "afterSeq": first - 1})


# --- ids ---


def test_ids_are_taken_until_long_after_the_close(client: ExecClient, tmp_path: Path) -> None:
    client.start("p", ["cat"], tmp_path, pipeStdin=True)
    again = start_params("p", ["true"], tmp_path)
    assert client.failure("process/start", again) == (-32600, "process p already exists")
    client.call("process/closeStdin", {"processId": "p"})
    client.story("p")
    assert client.failure("process/start", again) == (-32600, "process p already exists")


@pytest.mark.parametrize("name", ["", "é", "a b/c", "x" * 10_000])
def test_any_text_is_an_id(client: ExecClient, tmp_path: Path, name: str) -> None:
    assert client.run(name, ["echo", "hi"], tmp_path) == (0, b"hi\n")


def test_unknown_members_of_a_start_are_ignored(client: ExecClient, tmp_path: Path) -> None:
    metadata = {"threadId": "t", "toolCallId": "c"}
    assert client.run("p", ["true"], tmp_path, bogus=1, metadata=metadata, arg0=None, sandbox=None)[0] == 0


def test_list(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.run("done", ["/bin/sh", "-c", "exit 2"], tmp_path)
    client.start("tty", ["sleep", marker], tmp_path, tty=True)
    assert client.call("process/list")["processes"] == [
        {
            "processId": "done",
            "argv": ["/bin/sh", "-c", "exit 2"],
            "tty": False,
            "nextSeq": 3,
            "exited": True,
            "exitCode": 2,
            "closed": True,
        },
        {
            "processId": "tty",
            "argv": ["sleep", marker],
            "tty": True,
            "nextSeq": 1,
            "exited": False,
            "exitCode": None,
            "closed": False,
        },
    ]
    client.call("process/terminate", {"processId": "tty"})
    client.story("tty")


# --- reading ---


@pytest.fixture
def echoes(client: ExecClient, tmp_path: Path) -> ExecClient:
    """A process "p" that has written `a`, `bb` and `ccc` as events 1, 2 and 3, and waits for more."""
    client.start("p", sh("while read line; do echo $line; done; exit 6"), tmp_path, pipeStdin=True)
    for number, text in enumerate((b"a\n", b"bb\n", b"ccc\n")):
        client.write("p", text, str(number))
        client.wait_for_output("p", text)
    return client


@pytest.mark.parametrize(
    ("params", "seqs", "next_seq"),
    [
        ({}, [1, 2, 3], 4),
        ({"afterSeq": None, "maxBytes": None, "waitMs": None}, [1, 2, 3], 4),
        ({"afterSeq": 1}, [2, 3], 4),
        ({"afterSeq": 3}, [], 4),
        ({"afterSeq": 99}, [], 4),
        ({"maxBytes": 0}, [1], 2),
        ({"maxBytes": 1}, [1], 2),
        ({"maxBytes": 4}, [1], 2),
        ({"maxBytes": 5}, [1, 2], 3),
        ({"afterSeq": 2, "maxBytes": 1}, [3], 4),
        ({"afterSeq": 3, "maxBytes": 1}, [], 4),
        ({"afterSeq": 1, "waitMs": 60000}, [2, 3], 4),
    ],
    ids=str,
)
def test_read(echoes: ExecClient, params: Json, seqs: list[int], next_seq: int) -> None:
    read = echoes.call("process/read", {"processId": "p", **params})
    assert [chunk["seq"] for chunk in read.pop("chunks")] == seqs
    assert read == {
        "nextSeq": next_seq,
        "exited": False,
        "exitCode": None,
        "closed": False,
        "failure": None,
        "sandboxDenied": False,
    }
    echoes.call("process/terminate", {"processId": "p"})


def test_read_after_the_close(echoes: ExecClient) -> None:
    echoes.call("process/closeStdin", {"processId": "p"})
    echoes.story("p")
    for params, next_seq in (({"waitMs": 60000}, 6), ({"maxBytes": 1}, 2), ({"afterSeq": 99, "waitMs": 60000}, 6)):
        read = echoes.call("process/read", {"processId": "p", **params})
        assert (read["nextSeq"], read["exited"], read["exitCode"], read["closed"]) == (next_seq, True, 6, True)


def test_long_poll_waits_for_output_then_exit_then_close(client: ExecClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = f"(while [ ! -e {go} ]; do sleep 0.02; done) &"
    client.start("p", sh(f"read x; echo $x; read y; {late} exit 0"), tmp_path, pipeStdin=True)
    poll: Json = {"processId": "p", "waitMs": 60000}

    reading = client.request("process/read", poll)
    client.write("p", b"hi\n", "1")
    first = client.reply_to(reading)["result"]
    assert ([chunk["seq"] for chunk in first["chunks"]], first["exited"]) == ([1], False)

    reading = client.request("process/read", {**poll, "afterSeq": 1})
    client.write("p", b"\n", "2")
    second = client.reply_to(reading)["result"]
    assert (second["chunks"], second["exited"], second["closed"], second["exitedSeq"]) == ([], True, False, 2)

    reading = client.request("process/read", {**poll, "afterSeq": 2})
    go.touch()
    third = client.reply_to(reading)["result"]
    assert (third["nextSeq"], third["closed"]) == (4, True)


def test_a_long_poll_delays_nothing(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", ["sleep", marker], tmp_path)
    reading = client.request("process/read", {"processId": "p", "waitMs": 600_000})
    asked = client.request("environment/status")
    looked = client.request("fs/getMetadata", {"path": tmp_path.as_uri()})
    answers = [client.receive(), client.receive()]
    assert {answer["id"] for answer in answers} == {asked, looked}
    client.call("process/terminate", {"processId": "p", "graceMs": 0})
    assert client.reply_to(reading)["result"]["exitCode"] == 137


def test_a_short_poll_ends_by_itself(client: ExecClient, tmp_path: Path, marker: str) -> None:
    client.start("p", ["sleep", marker], tmp_path)
    read = client.call("process/read", {"processId": "p", "waitMs": 20})
    assert (read["chunks"], read["exited"]) == ([], False)
    client.call("process/terminate", {"processId": "p"})


# --- the starting window ---


@contextmanager
def stopped_helper(server: ServerProcess) -> Iterator[None]:
    """While the process that starts commands is stopped, a start stays under way."""
    helper = child_of(server.process.pid, "program.main()")
    os.kill(helper, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(helper, signal.SIGCONT)


def test_a_process_that_is_starting(client: ExecClient, server: ServerProcess, tmp_path: Path) -> None:
    start = start_params("r", ["cat"], tmp_path, pipeStdin=True)
    with stopped_helper(server):
        starting = client.request("process/start", start)
        assert client.write("r", b"x", "1") == "starting"
        assert client.failure("process/read", {"processId": "r", "waitMs": 500}) == (
            -32600,
            "process id r is starting",
        )
        assert client.failure("process/start", start) == (-32600, "process r already exists")
        assert client.call("process/signal", {"processId": "r", "signal": "interrupt"}) == {}
        assert client.told == []
    assert client.reply_to(starting)["result"]["processId"] == "r"
    assert client.write("r", b"y", "1") == "accepted"
    client.wait_for_output("r", b"y")
    assert client.call("process/terminate", {"processId": "r"}) == {"running": True}


def test_terminate_cancels_a_start(client: ExecClient, server: ServerProcess, tmp_path: Path, marker: str) -> None:
    with stopped_helper(server):
        starting = client.request("process/start", start_params("k", ["sleep", marker], tmp_path))
        assert client.call("process/terminate", {"processId": "k"}) == {"running": True}
        assert error_of(client.reply_to(starting)) == (-32600, "process k start was cancelled")
    assert client.run("k", ["true"], tmp_path) == (0, b""), "the id is free"
    assert numbers(client.story("k")) == [1, 2], "what was cancelled has no events"
    assert processes_left(marker) == []


def test_a_start_whose_connection_is_lost_leaves_nothing(
    client: ExecClient, server: ServerProcess, tmp_path: Path, marker: str
) -> None:
    with stopped_helper(server), connected(server.url) as lost:
        lost.handshake().request("process/start", start_params("k", ["sleep", marker], tmp_path))
        lost.call("environment/status")
    # Starts are carried out in order: after this one, the other has happened or never will.
    assert client.run("true", ["true"], tmp_path) == (0, b"")
    assert processes_left(marker) == []


# --- what surrounds a process ---


def test_a_client_that_does_not_read_blocks_only_its_own_process(
    client: ExecClient, server: ServerProcess, tmp_path: Path
) -> None:
    with connected(server.url, max_queue=4) as lazy:
        lazy.handshake()
        lazy.request("process/start", start_params("yes", ["yes"], tmp_path))
        for number in range(5):
            assert client.run(f"p{number}", ["echo", "hi"], tmp_path) == (0, b"hi\n")
        assert lazy.call("process/terminate", {"processId": "yes", "graceMs": 0}) == {"running": True}
        assert lazy.story("yes")[-1]["method"] == "process/closed"


def test_a_process_is_alone_in_its_session_and_inherits_nothing(client: ExecClient, tmp_path: Path) -> None:
    script = "echo $$; cut -d' ' -f5,6,7 /proc/$$/stat; echo /proc/$$/fd/*; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    own, group, open_fds, *masks = client.run("p", sh(script), tmp_path)[1].decode().splitlines()
    assert group.split() == [own, own, "0"], "group and session are its own, without a terminal"
    # The shell itself has the directory open that it lists.
    assert [fd.rpartition("/")[2] for fd in open_fds.split()][:3] == ["0", "1", "2"]
    assert len(open_fds.split()) <= 4
    # Of grep, not of the shell: that blocks signals of its own accord while it waits.
    # glibc's posix_spawn leaves its two internal signals, 32 and 33, ignored.
    assert [int(mask.split()[1], 16) & 0x7FFF_FFFF for mask in masks] == [0, 0]


def test_cwd_is_canonical(client: ExecClient, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    for number, uri in enumerate(
        (f"file://localhost{tmp_path}/a%20b/", f"FILE:{tmp_path}/x/%2e%2e/a%20b", f"{tmp_path.as_uri()}/./a%20b")
    ):
        params = {**start_params(str(number), ["pwd"], tmp_path), "cwd": uri}
        client.call("process/start", params)
        client.story(str(number))
        assert client.output(str(number)).decode() == f"{tmp_path}/a b\n"


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_arg0_is_a_name_and_no_program(client: ExecClient, tmp_path: Path, tty: bool) -> None:
    code, output = client.run("p", sh("echo $0"), tmp_path, tty=tty, arg0="custom-name")
    assert (code, output.strip()) == (0, b"custom-name")


def test_text_passes_as_utf8(client: ExecClient, tmp_path: Path) -> None:
    assert client.run("p", ["echo", "héllo 😀"], tmp_path)[1].decode() == "héllo 😀\n"


def test_a_killed_helper_ends_its_processes_and_is_replaced(
    tmp_path: Path, client: ExecClient, server: ServerProcess, marker: str
) -> None:
    client.start("p", sh(f"echo before; sleep {marker}"), tmp_path)
    client.wait_for_output("p", b"before\n")
    os.kill(child_of(server.process.pid, "program.main()"), signal.SIGKILL)
    assert methods(client.story("p")) == ["output", "exited", "closed"]
    assert client.exit_code("p") == -1
    read = client.call("process/read", {"processId": "p", "waitMs": 60000})
    assert (read["exitCode"], read["closed"], read["nextSeq"], read["failure"]) == (-1, True, 4, None)
    assert processes_left(marker) == []
    assert client.run("q", ["echo", "again"], tmp_path) == (0, b"again\n")
