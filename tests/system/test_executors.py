"""Executors that dial an app-server: used like others, back after a loss; and those that mean harm."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit.app_program import listening_server, refused
from kit.exec_program import running, server_environment
from kit.ports import free_port
from kit.processes import DEADLINE_S, processes_left
from kit.server_process import ServerProcess
from kit.transports import http_to
from kit.warm_python import run_python
from treadle.errors import ChannelClosed, MalformedMessage, RpcError
from treadle.execution import Dialer
from treadle.execution.server import ExecServer
from treadle.protocol.exec import METHODS
from treadle.rpc import Notification, Request
from treadle.server import MAX_EXECUTORS, MAX_LABELS, Executor, Executors, Introduction
from treadle.server.executors import MAX_WAITING
from treadle.testing import AppServerHarness
from treadle.transport import Address, Channel, Listener, RpcLink, connect
from treadle.transport.listen import listen

pytestmark = pytest.mark.anyio

TOKEN = "token-of-executors"
CLIENTS = "token-of-clients-0123"
INSTANCE = "0123456789abcdef" * 2


class Place:
    """A listener that takes executors, and clients by another token."""

    def __init__(self, executors: Executors, listener: Listener, clients: list[Channel]) -> None:
        self.executors = executors
        self.listener = listener
        self.clients = clients
        self.dialed: list[Channel] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{Address.parse(self.listener.url).port}/executors"

    async def dial(self, query: str, token: str | None = TOKEN, path: str = "/executors") -> Channel:
        port = Address.parse(self.listener.url).port
        channel = await connect(Address("ws", "127.0.0.1", port, f"{path}?{query}"), token=token)
        self.dialed.append(channel)
        return channel

    async def until(self, count: int) -> list[Executor]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.executors.there()) != count:
                await asyncio.sleep(0.01)
        return self.executors.there()

    async def close(self) -> None:
        await self.listener.close()
        await self.executors.close()
        for channel in (*self.clients, *self.dialed):
            channel.abort()


async def opened(port: int = 0, token: str | None = TOKEN) -> Place:
    executors, clients = Executors(token), list[Channel]()
    address = Address("ws", "127.0.0.1", port)
    listener = await listen(address, clients.append, token=CLIENTS, any_path=True, text_only=True, dial_in=executors)
    return Place(executors, listener, clients)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = await opened()
    yield place
    await place.close()


@contextlib.contextmanager
def executor(folder: Path, url: str, name: str, *arguments: str) -> Iterator[ServerProcess]:
    """The program, which dials."""
    folder = folder / f"executor-{name}"
    folder.mkdir(exist_ok=True)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    words = ("--dial", url, "--token-file", str(token), "--name", name, *arguments)
    with running(folder, *words, env={"TREADLE_LOG": "info"}, announced=False) as server:
        yield server


class Client:
    """What an app-server does with a channel: speaks the exec-server's protocol over it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.link = RpcLink(channel, self, untrusted=True)
        self.link.start()

    async def call(self, method: str, **params: Any) -> Any:
        kinds = METHODS[method]
        async with asyncio.timeout(DEADLINE_S):
            return await self.link.call(method, msgspec.convert(params, kinds.params), kinds.result)

    async def initialize(self, resume: str | None = None) -> str:
        """The id of the session."""
        while True:
            try:
                result = await self.call("initialize", clientName="test", resumeSessionId=resume, detachS=60)
            except RpcError as error:
                if error.code != -32010:
                    raise
            else:
                self.link.notify("initialized")
                session: str = result.session_id
                return session

    async def start(self, name: str, script: str, cwd: Path) -> None:
        argv = ["/bin/sh", "-c", script]
        env = {"PATH": "/usr/bin:/bin"}
        await self.call("process/start", processId=name, argv=argv, cwd=cwd.as_uri(), env=env, tty=False)

    async def output(self, name: str) -> bytes:
        """Until it has closed."""
        output, after = b"", 0
        while True:
            read = await self.call("process/read", processId=name, afterSeq=after, waitMs=60_000)
            output += b"".join(chunk.chunk for chunk in read.chunks)
            after = read.next_seq - 1
            if read.closed:
                return output

    def request_received(self, request: Request) -> None:
        raise AssertionError(request)

    def notification_received(self, notification: Notification) -> None: ...

    def malformed_received(self, error: MalformedMessage) -> None:
        raise AssertionError(error)

    def link_closed(self, reason: str) -> None: ...

    def link_writable(self) -> None: ...


# --- use ---


async def test_an_executor_that_dials_serves_several_clients(place: Place, tmp_path: Path) -> None:
    with executor(tmp_path, place.url, "box", "--label", "gpu", "--label", "linux") as program:
        (there,) = await place.until(1)
        assert (there.name, there.said.labels) == ("box", frozenset({"gpu", "linux"}))
        clients = []
        for wanted in ("box", ("gpu",), ("linux", "gpu"), ()):
            clients.append(Client(await place.executors.channel(wanted)))
            await clients[-1].initialize()
        assert len(there.used) == 4
        for number, client in enumerate(clients):
            await client.start("p", f"echo {number}", tmp_path)
            assert await client.output("p") == b"%d\n" % number
        with pytest.raises(ChannelClosed, match=r"labels cpu, gpu is not there \(connected: box\)"):
            await place.executors.channel(("gpu", "cpu"), deadline_s=0.05)
        clients[0].channel.close()
        async with asyncio.timeout(DEADLINE_S):
            while len(there.used) == 4:
                await asyncio.sleep(0.01)
        assert program.stop() == 0
        assert await place.until(0) == []
        assert TOKEN not in program.stderr


async def test_of_those_with_a_label_the_one_with_the_fewest_users_is_chosen(place: Place) -> None:
    for name, number in (("a", "1"), ("b", "2")):
        for _ in range(2):
            await place.dial(f"name={name}&label=x&instance={number * 32}")
    await place.until(2)
    taken = [(await place.executors.channel(["x"])).peer for _ in range(4)]
    assert sorted(taken[:2]) == sorted(taken[2:]) == ["executor a", "executor b"]


async def test_a_session_is_resumed_after_the_connection_was_lost(place: Place, tmp_path: Path, marker: str) -> None:
    go = tmp_path / "go"
    with executor(tmp_path, place.url, "box", "--label", "x"), executor(tmp_path, place.url, "other", "--label", "y"):
        await place.until(2)
        connect = place.executors.opener(["x"])
        client = Client(await connect())
        session = await client.initialize()
        await client.start("p", f"echo before; while [ ! -e {go} ]; do sleep 0.02; done; echo after", tmp_path)
        client.channel.abort()
        for _ in range(3):  # again and again, and always to the same
            client = Client(await connect())
            assert await client.initialize(session) == session
            client.channel.abort()
        go.touch()
        client = Client(await connect())
        await client.initialize(session)
        assert await client.output("p") == b"before\nafter\n"


async def test_an_executor_comes_back_to_a_server_that_was_away(tmp_path: Path) -> None:
    first = await opened()
    port = Address.parse(first.listener.url).port
    with executor(tmp_path, first.url, "box") as program:
        await first.until(1)
        client = Client(await first.executors.channel("box"))
        session = await client.initialize()
        await client.start("p", "sleep 0.5; echo done", tmp_path)
        for channel in tuple(first.listener.open):
            assert isinstance(channel, Channel)
            channel.abort()
        await first.close()
        program.wait_for_log("trying again")
        second = await opened(port)
        client = Client(await second.executors.channel("box", deadline_s=DEADLINE_S))
        await client.initialize(session)
        assert await client.output("p") == b"done\n"
        await second.close()


async def test_an_executor_that_was_killed_is_gone_and_its_name_is_free(
    place: Place, tmp_path: Path, marker: str
) -> None:
    with executor(tmp_path, place.url, "box") as program:
        await place.until(1)
        connect = place.executors.opener("box")
        client = Client(await connect())
        session = await client.initialize()
        await client.start("p", f"sleep {marker}", tmp_path)
        program.stop(signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            await client.channel.wait_closed()
        await place.until(0)
        assert await asyncio.to_thread(processes_left, marker) == []
        with executor(tmp_path, place.url, "box"):
            client = Client(await connect())
            with pytest.raises(RpcError, match="unknown session id"):
                await client.initialize(session)


async def test_a_stopped_executor_loses_its_name_to_one_that_lives(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.server.executors.PROBE_S", 0.2)
    with executor(tmp_path, place.url, "box") as program:
        (before,) = await place.until(1)
        with pytest.raises(ChannelClosed, match=r"409.*connected already"):
            await place.dial(f"name=box&instance={INSTANCE}")
        assert place.executors.there() == [before], "it lives"
        program.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(ChannelClosed):
                    await place.dial(f"name=box&instance={INSTANCE}")
                    break
                await asyncio.sleep(0.05)
        assert [each.said.instance for each in place.executors.there()] == [INSTANCE]


async def test_what_the_app_server_may_do_can_be_limited(place: Place, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.touch(mode=0o600)
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("secret")
    tokens.write_text(f'[tokens.app]\nfolders = ["{tmp_path / "work"}"]\nsandbox = "none"\nprocesses = 1\n')
    with executor(tmp_path, place.url, "box", "--tokens-file", str(tokens), "--rights", "app"):
        client = Client(await place.executors.channel("box", deadline_s=DEADLINE_S))
        await client.initialize()
        await client.start("p", "echo yes", tmp_path / "work")
        assert await client.output("p") == b"yes\n"
        with pytest.raises(RpcError, match="'app' may not run commands in"):
            await client.start("q", "true", tmp_path)
        with pytest.raises(RpcError, match="does not allow reading"):
            await client.call("fs/readFile", path=(tmp_path / "secret").as_uri())


async def test_a_signal_lets_commands_of_a_dialed_server_go_on(place: Place, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with executor(tmp_path, place.url, "box", "--drain-s", "600") as program:
        client = Client(await place.executors.channel("box", deadline_s=DEADLINE_S))
        await client.initialize()
        await client.start("p", f"while [ ! -e {go} ]; do sleep 0.02; done; echo done", tmp_path)
        program.send_signal()
        program.wait_for_log("draining")
        with pytest.raises(RpcError, match="takes no new commands"):
            await client.start("q", "true", tmp_path)
        go.touch()
        assert await client.output("p") == b"done\n"
        assert await asyncio.to_thread(program.wait) == 0


async def test_a_dialer_waits_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 12:
            enough.set()
            await asyncio.Event().wait()

    monkeypatch.setattr("treadle.execution.server.dialing.asyncio.sleep", sleep)
    async with ExecServer() as server:
        dialer = Dialer(server, Address("ws", "127.0.0.1", free_port(), "/executors"), token=TOKEN, name="box")
        task = asyncio.create_task(dialer.run())
        await asyncio.wait_for(enough.wait(), DEADLINE_S)
        task.cancel()
        await asyncio.wait([task])
    assert 0.25 <= slept[0] <= 0.5
    assert all(15 <= seconds <= 30 for seconds in slept[-3:])


# --- those that mean harm ---


async def test_without_a_token_of_its_own_nobody_is_taken() -> None:
    place = await opened(token=None)
    try:
        for token in (None, TOKEN, CLIENTS, "x"):
            with pytest.raises(ChannelClosed, match="404"):
                await place.dial(f"name=box&instance={INSTANCE}", token)
        assert (place.clients, place.executors.there()) == ([], [])
    finally:
        await place.close()


async def test_tokens_are_not_mixed_up(place: Place) -> None:
    good = f"name=box&instance={INSTANCE}"
    for token in (None, CLIENTS, "x", TOKEN + "x"):
        with pytest.raises(ChannelClosed, match="401"):
            await place.dial(good, token)
    for path in ("/", "/other", "/executors/", f"/{TOKEN}", f"/{TOKEN}/executors", "/executors/x"):
        with pytest.raises(ChannelClosed, match="401"):
            await place.dial(good, TOKEN, path)
    with pytest.raises(ChannelClosed, match="401"):
        await place.dial(good, None, f"/{CLIENTS}/executors")
    assert (place.clients, place.executors.there()) == ([], [])


@pytest.mark.parametrize(
    "query",
    [
        "",
        "name=box",
        f"instance={INSTANCE}",
        f"name=&instance={INSTANCE}",
        f"name=box&name=box&instance={INSTANCE}",
        f"name=box&instance={INSTANCE}&instance={INSTANCE}",
        f"name=box&instance={INSTANCE[:-1]}",
        f"name=box&instance={INSTANCE.upper()}x",
        f"name=../box&instance={INSTANCE}",
        f"name=a%2Fb&instance={INSTANCE}",
        f"name=a%0Ab&instance={INSTANCE}",
        f"name=a%00&instance={INSTANCE}",
        f"name=%FF&instance={INSTANCE}",
        f"name=b%C3%B6x&instance={INSTANCE}",
        f"name={'a' * 65}&instance={INSTANCE}",
        f"name=-box&instance={INSTANCE}",
        f"name=box&instance={INSTANCE}&label=",
        f"name=box&instance={INSTANCE}&label=a+b",
        f"name=box&instance={INSTANCE}&label={'l' * 65}",
        f"name=box&instance={INSTANCE}" + "&label=x" * (MAX_LABELS + 1),
        f"name=box&instance={INSTANCE}&rights=all",
        f"name=box&instance={INSTANCE}&;&&",
        "&" * 4000,
        "%" * 4000,
    ],
)
async def test_names_that_are_none_are_refused(place: Place, query: str) -> None:
    with pytest.raises(ValueError):
        Introduction.parse(query)
    with pytest.raises(ChannelClosed, match="400"):
        await place.dial(query)
    assert place.executors.there() == []


async def test_an_executor_that_speaks_first_is_dropped(place: Place) -> None:
    channel = await place.dial(f"name=box&instance={INSTANCE}")
    await place.until(1)
    channel.send(b'{"method":"process/output","params":{}}')
    await place.until(0)
    channel.abort()


async def test_floods_of_names_and_connections_are_bounded(place: Place) -> None:
    """And whoever is there already stays."""
    executors = place.executors
    for number in range(MAX_EXECUTORS):
        query = f"name=n{number}&instance={number:032x}"
        assert executors.refusal(query) is None
        executors.accept(Silent(), query)
    refusal = executors.refusal(f"name=late&instance={INSTANCE}")
    assert refusal is not None
    assert refusal.status == 503
    channels = [Silent() for _ in range(50)]
    for channel in channels:
        executors.accept(channel, f"name=n0&instance={0:032x}")
    (first,) = (each for each in executors.there() if each.name == "n0")
    assert list(first.idle) == channels[-2:]
    assert all(channel.closed for channel in channels[:-2])
    assert len(executors.there()) == MAX_EXECUTORS
    taken = [await executors.channel("n0"), await executors.channel("n0")]
    assert taken == channels[:-3:-1]
    for _ in range(62):
        executors.accept(Silent(), f"name=n0&instance={0:032x}")
        await executors.channel("n0")
    refusal = executors.refusal(f"name=n0&instance={0:032x}")
    assert refusal is not None
    assert refusal.status == 503


async def test_those_who_wait_are_bounded_and_all_served(place: Place) -> None:
    waiting = [asyncio.create_task(place.executors.channel("box", deadline_s=DEADLINE_S)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(ChannelClosed, match="others wait"):
        await place.executors.channel("box")
    for task in waiting[2:]:
        task.cancel()
    await asyncio.wait(waiting[2:])
    query = f"name=box&instance={INSTANCE}"
    dialed = [await place.dial(query), await place.dial(query)]
    assert {(await task).peer for task in waiting[:2]} == {"executor box"}
    for channel in dialed:
        channel.abort()


class Silent(Channel):
    """A connection that does nothing."""

    def __init__(self) -> None:
        super().__init__("silent")

    writable = True
    pending = 0

    def send(self, frame: bytes) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _begin(self) -> None: ...


# --- the programs ---


async def test_both_programs(tmp_path: Path) -> None:
    token = tmp_path / "executors.token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with AppServerHarness(tmp_path) as harness:
        words = ("--listen", "ws://127.0.0.1:0", "--executors-token-file", str(token))
        with listening_server(harness, *words) as server:
            url = f"ws://127.0.0.1:{Address.parse(server.url).port}/executors"
            with executor(tmp_path, url, "box") as program:
                assert program.read_line().startswith("treadle exec-server dials ws://127.0.0.1:")
                async with asyncio.timeout(DEADLINE_S):
                    while "treadle_executors 1\n" not in await asyncio.to_thread(metrics, server.url):
                        await asyncio.sleep(0.01)
                assert program.stop() == 0
        assert "is for a server that listens" in refused(harness, "--executors-token-file", str(token), code=2)
        token.write_text("short")
        assert "less than 16 characters" in refused(harness, *words)


def metrics(url: str) -> str:
    with http_to(url) as web:
        web.request("GET", "/metrics", headers={"Authorization": f"Bearer {Address.parse(url).path[1:]}"})
        return web.getresponse().read().decode()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dial", "ws://192.0.2.1:1/executors", "--token-file", "t"], "by wss:// alone"),
        (["--dial", "unix:///x", "--token-file", "t"], "by wss:// alone"),
        (["--dial", "wss://h/executors"], "--dial needs --token-file"),
        (["--dial", "wss://h/executors", "--token-file", "t", "--listen", "ws://127.0.0.1:9"], "does not listen"),
        (["--dial", "wss://h/executors", "--token-file", "t", "--rights", "x"], "go together"),
        (["--name", "x"], "--name is for --dial"),
        (["--label", "x"], "--label is for --dial"),
    ],
)
async def test_words_that_do_not_fit(tmp_path: Path, words: list[str], says: str) -> None:
    command = ["-m", "treadle", "exec-server", *words]
    done = await asyncio.to_thread(run_python, command, cwd=tmp_path, env=server_environment(), stdin="")
    assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
