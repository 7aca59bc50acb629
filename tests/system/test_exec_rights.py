"""Clients of one exec-server that have rights of their own, and try to get more. The victims are in `tmp_path`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from kit.exec_client import ExecClient, connected, error_of, start_params
from kit.exec_program import running, server_environment
from kit.processes import DEADLINE_S
from kit.sandboxes import usable
from kit.server_process import ServerProcess
from kit.warm_python import run_python
from kit.wire_client import Json
from treadle.execution import Mechanism
from treadle.logs import REFUSALS_PER_MINUTE
from treadle.transport import Address

NAMES = ("ci", "reader", "other", "free", "web")
# What changes which code a program loads, where it looks, or what it takes itself for.
LOADING = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "GLIBC_TUNABLES", "BASH_ENV", "ENV", "PYTHONPATH"),
    *(
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "TMPDIR",
        "TREADLE_HOME",
        "TREADLE_SANDBOX",
        "CODEX_HOME",
        "HOME",
        "SHELL",
    ),
)
HIDDEN = "the-secret-of-the-other-client"
DISABLED = {"permissions": {"type": "disabled"}}
EXTERNAL = {"permissions": {"type": "external", "network": "enabled"}}
UNRESTRICTED = {
    "permissions": {"type": "managed", "network": "enabled", "file_system": {"type": "unrestricted"}},
}
ROOT_WRITE = {
    "permissions": {
        "type": "managed",
        "network": "enabled",
        "file_system": {
            "type": "restricted",
            "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "write"}],
        },
    }
}
SANDBOXES: dict[str, Json | None] = {
    "null": None,
    "disabled": DISABLED,
    "external": EXTERNAL,
    "unrestricted": UNRESTRICTED,
    "root write": ROOT_WRITE,
}


def naming(ground: Ground) -> dict[str, Json | None]:
    """Sandboxes that name what is not the client's, in every way there is."""
    other = (ground / "other").as_uri()

    def special(kind: str, **more: str) -> Json:
        return {"path": {"type": "special", "value": {"kind": kind, **more}}, "access": "write"}

    def entry(uri: str, access: str = "write") -> Json:
        return {"path": {"type": "path", "path": uri}, "access": access}

    def sandbox(*entries: Json, **more: object) -> Json:
        file_system = {"type": "restricted", "entries": entries}
        permissions = {"type": "managed", "network": "enabled", "file_system": file_system}
        return {"permissions": permissions, **more}

    own = entry((ground / "ci").as_uri())
    ours = {"protectOrders": True, "canonicalPaths": True, "rootsOf": "x"}
    return {
        **SANDBOXES,
        "a path": sandbox(own, entry(other), entry(f"{other}/secret"), entry(f"{other}/new", "read")),
        "roots": sandbox(own, special("project_roots"), workspaceRoots=[other, "file:///"], cwd=other),
        "temporary": sandbox(own, special("tmpdir"), special("slash_tmp"), temporaryDirectories=[other]),
        "of ours": sandbox(special("root"), entry(other), **ours),
    }


@dataclass
class Ground:
    """A server with a tokens file, the folder of each client, and what none of the others may reach."""

    server: ServerProcess
    folder: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @contextmanager
    def client(self, name: str, token: str | None = None) -> Iterator[ExecClient]:
        headers = {"Authorization": f"Bearer {token or token_of(name)}"}
        with connected(self.server.url, headers=headers) as client:
            yield client

    def check_victims(self) -> None:
        assert (self / "other" / "secret").read_text() == HIDDEN
        assert sorted(path.name for path in (self / "other").iterdir()) == ["secret"]
        assert (self / "tokens.toml").stat().st_size > 100


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


def served(folder: Path, env: dict[str, str], *arguments: str) -> Iterator[Ground]:
    for name in (*NAMES, "shared"):
        (folder / name).mkdir()
    (folder / "shared" / "data").write_text("for all")
    (folder / "other" / "secret").write_text(HIDDEN)
    (folder / "ci" / "link").symlink_to(folder / "other")
    (folder / "ci" / "own").write_text("mine")
    (folder / "other.token").touch(mode=0o600)
    (folder / "other.token").write_text(token_of("other"))
    digests = {name: hashlib.sha256(token_of(name).encode()).hexdigest() for name in NAMES}
    tokens = folder / "tokens.toml"
    tokens.touch(mode=0o600)
    tokens.write_text(
        f"""
        [tokens.ci]
        sha256 = "{digests["ci"]}"
        folders = ["{folder / "ci"}"]
        processes = 2
        files = 256
        memory = "64 GiB"
        sessions = 2
        [tokens.reader]
        sha256 = "{digests["reader"]}"
        folders = ["{folder / "reader"}"]
        readable = ["{folder / "shared"}"]
        sandbox = "read-only"
        [tokens.other]
        token_file = "other.token"
        folders = ["{folder / "other"}"]
        metrics = true
        [tokens.free]
        sha256 = "{digests["free"]}"
        folders = ["{folder / "free"}"]
        sandbox = "none"
        [tokens.web]
        sha256 = "{digests["web"]}"
        sandbox = "read-only"
        http = true
        """
    )
    secrets = {"SRV_API_KEY": "of-the-server", "SRVVAR": "fromserver", "TREADLE_LOG_FORMAT": "json", **env}
    with running(folder, "--tokens-file", str(tokens), "--max-processes", "4", *arguments, env=secrets) as server:
        yield Ground(server, folder)
        server.check_well()


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    mechanism: Mechanism = request.param
    env = {"TREADLE_SANDBOX": usable(mechanism), "TREADLE_AUDIT_FILE": "audit.jsonl"}
    yield from served(tmp_path_factory.mktemp("rights"), env)


@pytest.fixture
def ci(ground: Ground) -> Iterator[ExecClient]:
    with ground.client("ci") as client:
        yield client.handshake()
    ground.check_victims()


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def attempt(client: ExecClient, name: str, script: str, cwd: Path, **more: object) -> tuple[int, bytes]:
    """What a command came to, 7 for one that was refused."""
    params = start_params(name, ["/bin/bash", "-c", script], cwd, **more)
    reply = client.reply_to(client.request("process/start", params))
    if "error" in reply:
        assert reply["error"]["code"] in (-32600, -32603), reply
        return 7, str(reply["error"]["message"]).encode()
    client.story(name)
    code, output = client.exit_code(name), client.output(name)
    return 7 if code == 126 and output.startswith(b"treadle sandbox: ") else code, output


def test_what_is_given_works(ground: Ground, ci: ExecClient) -> None:
    folder = ground / "ci"
    assert ci.info["cwd"] == folder.as_uri()
    assert ci.run("p", sh("cat own && echo new > made && cat made"), folder) == (0, b"minenew\n")
    own = {"path": (folder / "own").as_uri()}
    assert base64.b64decode(ci.call("fs/readFile", own)["dataBase64"]) == b"mine"
    ci.call("fs/writeFile", {"path": (folder / "written").as_uri(), "dataBase64": "eA=="})
    assert (folder / "written").read_text() == "x"
    with ground.client("other") as other:
        assert other.handshake().run("p", ["cat", "secret"], ground / "other") == (0, HIDDEN.encode())
    with ground.client("reader") as reader:
        reader.handshake()
        assert reader.run("p", sh("echo x > made"), ground / "reader")[0] != 0
        code, _ = reader.failure("fs/writeFile", {"path": (ground / "reader" / "x").as_uri(), "dataBase64": ""})
        assert code == -32603
        assert list((ground / "reader").iterdir()) == []
    with ground.client("free") as free:
        assert free.handshake().run("p", ["cat", str(ground / "other" / "secret")], ground / "free")[0] == 0, (
            "without a sandbox nothing keeps a command, and the documentation says so"
        )
        assert free.failure("fs/readFile", {"path": (ground / "other" / "secret").as_uri()})[0] == -32600


def ways_out(ground: Ground) -> dict[str, str]:
    """URIs of what is not in the folder of `ci`."""
    folder, other = (ground / "ci").as_uri(), (ground / "other").as_uri()
    return {
        "directly": f"{other}/secret",
        "by ..": f"{folder}/../other/secret",
        "by encoded ..": f"{folder}/%2E%2E/other/secret",
        "by a link": f"{folder}/link/secret",
        "the tokens": (ground / "tokens.toml").as_uri(),
        "a token": (ground / "other.token").as_uri(),
        "the variables of the server": "file:///proc/self/environ",
        "the memory of the server": f"file:///proc/{ground.server.pid}/mem",
        "a system file": "file:///etc/hostname",
    }


WAYS = (*SANDBOXES, "a path", "roots", "temporary", "of ours")


@pytest.mark.parametrize("way", WAYS)
def test_files_outside_of_the_folders(ground: Ground, ci: ExecClient, way: str) -> None:
    sandbox = naming(ground)[way]
    own = (ground / "ci" / "own").as_uri()
    other = (ground / "other").as_uri()
    walk = {"maxDepth": 3, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": True}
    for way, path in ways_out(ground).items():
        given: Json = {"path": path, "sandbox": sandbox}
        asked: list[tuple[str, Json]] = [
            ("fs/readFile", given),
            ("fs/readFile", {**given, "followSymlinks": False}),
            ("fs/getMetadata", given),
            ("fs/getMetadata", {**given, "followSymlinks": False}),
            ("fs/canonicalize", given),
            ("fs/open", {**given, "handleId": "h", "mode": "read"}),
            ("fs/copy", {"sourcePath": path, "destinationPath": f"{own}2", "recursive": True, "sandbox": sandbox}),
        ]
        for method, params in asked:
            code, text = ci.failure(method, params)
            assert code in (-32600, -32603), (way, method, text)
            assert HIDDEN not in text
    looked = {"paths": list(ways_out(ground).values()), "sandbox": sandbox}
    reply = ci.reply_to(ci.request("fs/look", looked))
    assert "error" in reply or set(reply["result"]["found"]) == {None}, reply
    changes: list[tuple[str, Json]] = [
        ("fs/writeFile", {"path": f"{other}/secret", "dataBase64": ""}),
        ("fs/writeFile", {"path": (ground / "ci" / "link" / "new").as_uri(), "dataBase64": ""}),
        ("fs/writeFile", {"path": (ground / "tokens.toml").as_uri(), "dataBase64": ""}),
        ("fs/createDirectory", {"path": f"{other}/new/deep"}),
        ("fs/createDirectory", {"path": f"{other}/new", "recursive": False}),
        ("fs/remove", {"path": f"{other}/secret"}),
        ("fs/remove", {"path": other}),
        ("fs/remove", {"path": (ground / "ci" / "link" / "secret").as_uri()}),
        ("fs/copy", {"sourcePath": own, "destinationPath": f"{other}/copy", "recursive": False}),
        ("fs/open", {"path": f"{other}/secret", "handleId": "h", "mode": "replace"}),
        ("fs/readDirectory", {"path": other}),
        ("fs/readDirectory", {"path": (ground / "ci" / "link").as_uri()}),
        ("fs/walk", {"path": other, "options": walk}),
    ]
    for method, params in changes:
        code, text = ci.failure(method, {**params, "sandbox": sandbox})
        assert code in (-32600, -32603), (method, text)
    walked = ci.call("fs/walk", {"path": (ground / "ci").as_uri(), "options": walk, "sandbox": sandbox})
    assert HIDDEN not in str(walked)
    assert "secret" not in str(walked)


@pytest.mark.parametrize("way", WAYS)
def test_commands_outside_of_the_folders(ground: Ground, ci: ExecClient, way: str) -> None:
    sandbox = naming(ground)[way]
    victim = ground / "other" / "secret"
    for number, script in enumerate(
        (
            f"cat {victim}",
            "cat link/secret",
            "cat ../other/secret",
            f"cat {ground / 'tokens.toml'} {ground / 'other.token'}",
            f"cat /proc/{ground.server.pid}/environ",
            f"cat /proc/{ground.server.pid}/root{victim}",
            f"ln -sf {ground / 'other'} planted; cat planted/secret",
            f"ln {victim} hard; cat hard",
            f"echo x > {victim}; echo x > {ground / 'other'}/new; rm {victim}; mv {ground / 'other'} ./taken",
            f"kill -9 {ground.server.pid}",
        )
    ):
        for tty in (False, True):
            name = f"p{number}{tty}"
            code, output = attempt(ci, name, f"{script} && exit 0; exit 7", ground / "ci", sandbox=sandbox, tty=tty)
            assert code == 7, (script, output)
            assert HIDDEN.encode() not in output
            assert b"of-the-server" not in output
            assert token_of("other").encode() not in output
    # A link that a command planted leads the next request nowhere.
    assert ci.failure("fs/readFile", {"path": (ground / "ci" / "planted" / "secret").as_uri()})[0] in (-32600, -32004)
    (ground / "ci" / "planted").unlink(missing_ok=True)


SEGMENTS = (
    "..",
    "%2E%2E",
    ".",
    "",
    "ci",
    "other",
    "secret",
    "link",
    "own",
    "deep",
    "proc",
    "self",
    "root",
    "%2F",
    "%00",
)


@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(SEGMENTS), max_size=8), st.sampled_from(list(SANDBOXES.values())))
def test_no_spelling_of_a_path_leads_out(ground: Ground, ci: ExecClient, segments: list[str], sandbox: Json) -> None:
    """Only what reads: nothing is changed wherever it may lead."""
    path = "/".join((ground.folder.as_uri(), *segments))
    start = ground / "ci"
    plain = os.path.normpath("/".join((str(ground.folder), *segments)).replace("%2E", ".").replace("%2F", "/"))
    inside = "%00" not in segments and Path(os.path.realpath(plain)).is_relative_to(start)
    given = {"path": path, "sandbox": sandbox}
    for method in ("fs/getMetadata", "fs/readFile", "fs/readDirectory", "fs/canonicalize"):
        reply = ci.reply_to(ci.request(method, given))
        assert inside or "error" in reply, (method, path, reply)
        assert base64.b64encode(HIDDEN.encode()).decode() not in str(reply)
    reply = ci.reply_to(ci.request("process/start", {**start_params("path", ["pwd"], start), "cwd": path}))
    assert inside or "error" in reply, (path, reply)
    if "result" in reply:
        ci.story("path")
        ci.told.clear()


def test_the_working_directory_is_in_the_folders(ground: Ground, ci: ExecClient) -> None:
    (ground / "ci-too").mkdir(exist_ok=True)  # a name that begins alike
    for path in (
        ground / "other",
        Path("/"),
        ground / "ci" / "link",
        ground / "ci" / ".." / "other",
        ground / "ci-too",
    ):
        code, text = ci.failure("process/start", start_params("p", ["true"], path))
        assert (code, "may not run commands in" in text) == (-32600, True), path


def test_variables_and_names_give_nothing(ground: Ground, ci: ExecClient) -> None:
    everything = {"inherit": "all", "ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []}
    _, output = ci.run("env", ["env"], ground / "ci", envPolicy=everything)
    assert b"SRVVAR=fromserver" in output
    assert b"of-the-server" not in output
    preload = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(ground / "ci" / "evil.so"), "BASH_ENV": "evil"}
    (ground / "ci" / "evil.so").write_bytes(b"no library")
    code, output = ci.run("preload", sh("cat ../other/secret"), ground / "ci", env=preload)
    assert code != 0
    assert HIDDEN.encode() not in output
    code, output = ci.run("arg0", sh("cat ../other/secret"), ground / "ci", arg0="/usr/bin/bwrap")
    assert code != 0
    assert HIDDEN.encode() not in output


def test_variables_do_not_reach_what_confines(ground: Ground, ci: ExecClient) -> None:
    evil = ground / "ci" / "evil"
    evil.mkdir(exist_ok=True)
    for name in ("sitecustomize.py", "usercustomize.py", "os.py", "libc.so.6", "evil"):
        (evil / name).write_text(f"import builtins; print(builtins.open('{ground / 'other' / 'secret'}').read())\n")
    script = f"cat {ground / 'other' / 'secret'}; echo x > {ground / 'other'}/new; exit 7"
    for name in LOADING:
        for number, value in enumerate((str(evil), str(evil / "evil"), str(ground / "other"), "landlock", "")):
            variables = {"PATH": f"{evil}:/usr/bin:/bin", name: value}
            _, output = attempt(ci, f"{name}{number}", script, ground / "ci", env=variables)
            assert HIDDEN.encode() not in output, (name, value)
            ci.told.clear()
    assert not (ground / "other" / "new").exists()


def test_other_clients_processes_are_out_of_reach(ground: Ground, ci: ExecClient, marker: str) -> None:
    with ground.client("other") as other:
        other.handshake()
        other.start("shared-name", sh(f"echo up; exec sleep {marker}"), ground / "other")
        other.wait_for_output("shared-name", b"up")
        for method, params in (
            ("process/read", {}),
            ("process/resize", {"rows": 1, "cols": 1}),
            ("process/closeStdin", {}),
        ):
            assert ci.failure(method, {"processId": "shared-name", **params})[0] == -32600, method
        written = {"processId": "shared-name", "chunk": "eA==", "writeId": "w"}
        assert ci.call("process/write", written) == {"status": "unknownProcess"}
        assert ci.call("process/terminate", {"processId": "shared-name"}) == {"running": False}
        ci.call("process/signal", {"processId": "shared-name", "signal": "kill"})
        assert ci.call("process/list", {})["processes"] == []
        there = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and says(path, marker)]
        assert there
        for number, each in enumerate(there):
            script = (
                f"kill -9 {each}; cat /proc/{each}/cwd/secret /proc/{each}/root{ground / 'other' / 'secret'} "
                f"/proc/{each}/environ; echo x > /proc/{each}/cwd/new; exit 7"
            )
            code, output = attempt(ci, f"k{number}", script, ground / "ci")
            assert (code, HIDDEN.encode() in output) == (7, False), output
        assert other.call("process/list", {})["processes"][0]["exited"] is False
        other.call("process/terminate", {"processId": "shared-name", "graceMs": 0})
        other.wait_for_process("process/closed", "shared-name")


def says(path: Path, marker: str) -> bool:
    try:
        return marker.encode() in (path / "cmdline").read_bytes()
    except OSError:
        return False


def test_who_reads_the_whole_disk_sees_neither_tokens_nor_the_server(ground: Ground) -> None:
    hidden = [ground / "tokens.toml", ground / "other.token"]
    hidden += [Path(f"/proc/{ground.server.pid}/{name}") for name in ("environ", "mem", "fd/0")]
    hidden += [Path(f"/proc/{ground.server.pid}/root{path}") for path in hidden[:2]]
    with ground.client("web") as web:
        web.handshake()
        for way, sandbox in naming(ground).items():
            for number, path in enumerate(hidden):
                given = {"path": path.as_uri(), "sandbox": sandbox}
                assert web.failure("fs/readFile", given)[0] in (-32600, -32603, -32004), (way, path)
                script = f"head -c 64 {path} || exit 7"
                code, output = attempt(web, f"{way}{number}", script, Path("/"), sandbox=sandbox)
                assert code == 7, (way, path, output)
                web.told.clear()
        code, _ = web.run("w", sh(f"echo x > {ground / 'web' / 'made'}"), ground / "web", sandbox=ROOT_WRITE)
        assert code != 0
        assert list((ground / "web").iterdir()) == []


def test_what_can_be_read_is_not_written(ground: Ground) -> None:
    shared = ground / "shared"
    (ground / "reader" / "way").unlink(missing_ok=True)
    with ground.client("reader") as reader:
        reader.handshake()
        assert reader.run("p", ["cat", str(shared / "data")], ground / "reader") == (0, b"for all")
        data = reader.call("fs/readFile", {"path": (shared / "data").as_uri()})["dataBase64"]
        assert base64.b64decode(data) == b"for all"
        for way, sandbox in naming(ground).items():
            for method, params in (
                ("fs/writeFile", {"path": (shared / "data").as_uri(), "dataBase64": ""}),
                ("fs/remove", {"path": (shared / "data").as_uri()}),
                ("fs/createDirectory", {"path": (shared / "new").as_uri()}),
            ):
                assert reader.failure(method, {**params, "sandbox": sandbox})[0] in (-32600, -32603), (way, method)
            script = f"echo x > {shared}/data; touch {shared}/new; rm {shared}/data; exit 7"
            assert attempt(reader, f"p {way}", script, ground / "reader", sandbox=sandbox)[0] == 7
    assert [(path.name, path.read_text()) for path in shared.iterdir()] == [("data", "for all")]


def test_a_confined_command_does_not_raise_its_limits(ground: Ground, ci: ExecClient) -> None:
    script = "ulimit -Hn; ulimit -Hn 300 && echo raised; prlimit --nofile=300:300 true && echo raised; true"
    for way, sandbox in naming(ground).items():
        code, output = attempt(ci, f"l {way}", script, ground / "ci", sandbox=sandbox)
        assert code == 7 or (output.split()[:1], b"raised" in output) == ([b"256"], False), (way, output)


def test_commands_of_sessions_that_are_away_count(ground: Ground, marker: str) -> None:
    folder = ground / "ci"
    with ground.client("ci") as first:
        first.handshake()
        for name in ("a", "b"):
            first.start(name, ["sleep", marker], folder)
        session = first.session_id
    with ground.client("ci") as second:
        second.handshake()
        code, text = second.failure("process/start", start_params("c", ["true"], folder))
        assert (code, "has 2 commands running" in text) == (-32600, True)
        with ground.client("ci") as third:
            code, text = third.failure("initialize", {"clientName": "x", "detachS": 1e9})
            assert (code, "has 2 sessions open" in text) == (-32600, True)
            resume = {"clientName": "x", "resumeSessionId": session, "detachS": 1e9}
            while "error" in (reply := third.reply_to(third.request("initialize", resume))):
                pass  # it is still attached for a moment
            assert reply["result"]["detachS"] <= 30, "the server says how long"
            third.send({"method": "initialized", "params": {}})
            for name in ("a", "b"):
                third.call("process/terminate", {"processId": name, "graceMs": 0})
                third.wait_for_process("process/closed", name)
            third.call("session/detach", {"detachS": 0})
        assert second.run("c", ["echo", "hi"], folder) == (0, b"hi\n")


def test_the_network_is_closed_and_http_is_a_right_of_its_own(ground: Ground, ci: ExecClient) -> None:
    port = Address.parse(ground.server.url).port
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    code, output = ci.run("net", ["/usr/bin/python3", "-c", connect], ground / "ci", sandbox=UNRESTRICTED)
    assert code != 0, output
    request = {"method": "GET", "url": f"http://127.0.0.1:{port}/readyz", "requestId": "r"}
    code, text = ci.failure("http/request", request)
    assert (code, "may make no HTTP requests" in text) == (-32600, True)
    with ground.client("web") as web:
        web.handshake()
        assert web.call("http/request", request)["status"] == 200
        header = {"name": "x", "value": "", "valueEnvVar": "SRV_API_KEY"}
        assert web.failure("http/request", {**request, "headers": [header]})[0] == -32602


def test_what_is_outside_cannot_be_watched(ground: Ground, ci: ExecClient) -> None:
    assert "fsWatchMissing" not in ci.info["capabilities"]
    params = {"watchId": 1, "missing": [(ground / "other" / "secret").as_uri()], "present": None}
    assert ci.failure("fs/watchMissing", params)[0] == -32600


def test_a_session_belongs_to_a_name(ground: Ground) -> None:
    with ground.client("other") as other:
        session = other.handshake().session_id
    with ground.client("ci") as ci:
        resume = {"clientName": "x", "resumeSessionId": session}
        assert ci.failure("initialize", resume) == (-32600, f"unknown session id {session}")
    with ground.client("other") as other:
        while "error" in other.reply_to(other.request("initialize", resume)):
            pass  # it is still attached for a moment


def test_numbers_of_commands_and_sessions(ground: Ground, ci: ExecClient, marker: str) -> None:
    folder = ground / "ci"
    with ground.client("ci") as second, ground.client("ci") as third:
        second.handshake()
        code, text = third.failure("initialize", {"clientName": "x"})
        assert (code, "has 2 sessions open" in text) == (-32600, True)
        ci.start("a", ["sleep", marker], folder)
        second.start("b", ["sleep", marker], folder)
        for client in (ci, second):
            code, text = client.failure("process/start", start_params("c", ["true"], folder))
            assert (code, "has 2 commands running" in text) == (-32600, True)
        with ground.client("free") as free:
            free.handshake()
            for name in ("a", "b"):
                free.start(name, ["sleep", marker], ground / "free")
            code, text = free.failure("process/start", start_params("c", ["true"], ground / "free"))
            assert (code, "4 commands are running" in text) == (-32600, True)
            for name in ("a", "b"):
                free.call("process/terminate", {"processId": name, "graceMs": 0})
                free.wait_for_process("process/closed", name)
        ci.call("process/terminate", {"processId": "a", "graceMs": 0})
        ci.wait_for_process("process/closed", "a")
        assert second.run("c", ["echo", "hi"], folder) == (0, b"hi\n")
        second.call("process/terminate", {"processId": "b", "graceMs": 0})
        second.wait_for_process("process/closed", "b")


def test_a_flood_of_starts_gets_no_more_than_its_number(ground: Ground, ci: ExecClient, marker: str) -> None:
    starts = [
        ci.request("process/start", start_params(f"f{number}", ["sleep", marker], ground / "ci"))
        for number in range(40)
    ]
    answers = [ci.reply_to(start) for start in starts]
    assert sum("result" in answer for answer in answers) == 2
    assert {error_of(answer)[0] for answer in answers if "error" in answer} == {-32600}
    for number in range(40):
        ci.call("process/terminate", {"processId": f"f{number}", "graceMs": 0})


def test_who_has_no_token_or_the_wrong_one(ground: Ground) -> None:
    for token in ("wrong", "token-of-ci-012345678", hashlib.sha256(token_of("ci").encode()).hexdigest()):
        with pytest.raises(InvalidStatus) as caught, ground.client("ci", token):
            pass
        assert caught.value.response.status_code == 401
    with connected(f"{ground.server.url}/{token_of('ci')}") as client:  # as a path, for clients that have only a URL
        assert client.handshake().info["cwd"] == (ground / "ci").as_uri()


def test_the_name_is_in_logs_and_metrics_and_the_token_is_not(ground: Ground, ci: ExecClient) -> None:
    for _ in range(120):
        assert ci.failure("fs/readFile", {"path": (ground / "other" / "secret").as_uri()})[0] == -32600
    with connected(f"{ground.server.url}/{token_of('other')}") as other:
        other.handshake()
    address = Address.parse(ground.server.url)

    def metrics(name: str) -> tuple[int, str]:
        web = HTTPConnection(address.host, address.port, timeout=DEADLINE_S)
        web.request("GET", "/metrics", headers={"Authorization": f"Bearer {token_of(name)}"})
        response = web.getresponse()
        text = response.read().decode()
        web.close()
        return response.status, text

    assert metrics("ci")[0] == 403
    status, text = metrics("other")
    assert status == 200
    assert 'treadle_exec_requests_total{client="ci",outcome="denied"}' in text
    logged = [json.loads(line) for line in ground.server.stderr.splitlines()]
    denied = [line for line in logged if line["message"] == "a request was denied" and line["token_name"] == "ci"]
    assert 1 <= len(denied) <= 2 * REFUSALS_PER_MINUTE, "a flood of them does not fill the disk"
    assert float(text.partition('client="ci",outcome="denied"} ')[2].split()[0]) > 100
    assert denied[0]["level"] == "warning"
    audit = (ground / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in audit.splitlines()]
    assert {"ci"} <= {line.get("token_name") for line in lines if line["event"] == "request denied"}
    assert {"ci", "other"} <= {line.get("token_name") for line in lines if line["event"] == "session"}
    for shown in (ground.server.stderr, audit, text):
        assert not [name for name in NAMES if token_of(name) in shown]


def test_limits_of_a_client_are_those_of_its_commands(tmp_path: Path) -> None:
    digest = hashlib.sha256(token_of("ci").encode()).hexdigest()
    tokens = tmp_path / "tokens.toml"
    tokens.touch(mode=0o600)
    tokens.write_text(f'[tokens.ci]\nsha256 = "{digest}"\nsandbox = "none"\nfiles = 77\ncpu_s = 1000\n')
    with running(tmp_path, "--tokens-file", str(tokens)) as server:
        headers = {"Authorization": f"Bearer {token_of('ci')}"}
        with connected(server.url, headers=headers) as client:
            script = "ulimit -Hn; ulimit -Ht"
            assert client.handshake().run("p", ["/bin/bash", "-c", script], tmp_path) == (0, b"77\n1000\n")
        server.check_well()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tokens.a]\n", "[tokens.a]: sandbox"),
        ('[tokens.a]\ncertificate = "x"\nsandbox = "none"\nbogus = 1', "unknown field `bogus`"),
    ],
)
def test_a_tokens_file_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, text: str, says: str) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.touch(mode=0o600)
    tokens.write_text(text)

    def refused(*arguments: str, code: int) -> str:
        words = ["-m", "treadle", "exec-server", "--tokens-file", str(tokens), *arguments]
        done = run_python(words, cwd=tmp_path, env=server_environment(), stdin="")
        assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (code, "", False), done.stderr
        return done.stderr

    assert says in refused(code=1)
    assert "is in place of --token-file and --no-token" in refused("--no-token", code=2)
    assert "is for a listener" in refused("--listen", "stdio://", code=2)
    tokens.chmod(0o644)
    assert "its mode is 0644" in refused(code=1)
