"""What surrounds a process: its environment variables, and the sandbox that a client asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.exec_client import ExecClient, start_params
from kit.server_process import ServerProcess
from kit.wire_client import Json
from treadle.transport import Address

# --- environment variables; the server of these tests has SRVVAR=fromserver and SRV_API_KEY=hidden ---


def policy(inherit: str, **change: object) -> Json:
    everything: Json = {"ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []}
    return {"inherit": inherit, **everything, **change}


def variables(client: ExecClient, folder: Path, env: Json, env_policy: Json | None) -> dict[str, str]:
    code, output = client.run("env", ["/usr/bin/env"], folder, env=env, envPolicy=env_policy)
    assert code == 0
    return dict(line.split("=", 1) for line in output.decode().splitlines() if "=" in line)


@pytest.mark.parametrize("env", [{}, {"A": "b"}, {"A": "b", "MY_TOKEN": "t", "Ä": "ö =\\"}], ids=str)
def test_without_a_policy_the_environment_is_exactly_env(client: ExecClient, tmp_path: Path, env: Json) -> None:
    assert variables(client, tmp_path, env, None) == env


def test_a_program_is_found_without_a_path(client: ExecClient, tmp_path: Path) -> None:
    assert client.run("p", ["echo", "found"], tmp_path, env={}) == (0, b"found\n")


def test_inherit_none(client: ExecClient, tmp_path: Path) -> None:
    given = policy("none", ignoreDefaultExcludes=False, set={"SETV": "1", "A": "frompolicy"})
    assert variables(client, tmp_path, {"A": "fromenv"}, given) == {"SETV": "1", "A": "fromenv"}


def test_inherit_core(client: ExecClient, tmp_path: Path) -> None:
    seen = variables(client, tmp_path, {}, policy("core", set={"SETV": "1"}))
    core = {"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"}
    assert {"PATH", "SETV"} <= set(seen) <= core | {"SETV"}


def test_inherit_all(client: ExecClient, tmp_path: Path) -> None:
    seen = variables(client, tmp_path, {"A": "fromenv"}, policy("all", set={"A": "frompolicy"}))
    assert (seen["SRVVAR"], seen["SRV_API_KEY"], seen["A"]) == ("fromserver", "hidden", "fromenv")


def test_secrets_are_left_out_unless_asked_for(client: ExecClient, tmp_path: Path) -> None:
    given = policy("all", ignoreDefaultExcludes=False, set={"SET_TOKEN": "1"})
    seen = variables(client, tmp_path, {"MY_SECRET": "s"}, given)
    assert "SRV_API_KEY" not in seen
    assert (seen["SRVVAR"], seen["SET_TOKEN"], seen["MY_SECRET"]) == ("fromserver", "1", "s")


def test_exclude(client: ExecClient, tmp_path: Path) -> None:
    seen = variables(client, tmp_path, {}, policy("all", exclude=["srv*"], set={"SRV_SET": "1"}))
    assert {name for name in seen if name.startswith("SRV")} == {"SRV_SET"}


def test_include_only(client: ExecClient, tmp_path: Path) -> None:
    given = policy("all", set={"SETZ": "1"}, includeOnly=["srvv*", "PATH"])
    assert set(variables(client, tmp_path, {"Q": "1"}, given)) == {"PATH", "Q", "SRVVAR"}


# --- sandbox ---


def special(kind: str, access: str, subpath: str | None = None) -> Json:
    value: Json = {"kind": kind} if subpath is None else {"kind": kind, "subpath": subpath}
    entry: Json = {"path": {"type": "special", "value": value}, "access": access}
    return entry if subpath is None else {**entry, "missing_path_behavior": "skip"}


def restricted(root: Path, *entries: Json, network: str = "restricted") -> Json:
    """What Codex sends for workspace-write, but for the temporary directories, in which these tests run."""
    listed = [special("root", "read"), special("project_roots", "write"), *entries]
    file_system = {"type": "restricted", "entries": [*listed, special("project_roots", "read", ".git")]}
    return {
        "permissions": {"type": "managed", "file_system": file_system, "network": network},
        "cwd": root.as_uri(),
        "workspaceRoots": [root.as_uri()],
        "windowsSandboxLevel": "disabled",
        "windowsSandboxProxySettingsMode": "reconcile",
        "useLegacyLandlock": False,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return root


@pytest.fixture
def confining(client: ExecClient, root: Path) -> ExecClient:
    """A client whose server can confine; skipped where the machine has neither mechanism."""
    reply = client.reply_to(
        client.request("process/start", start_params("probe", ["true"], root, sandbox=restricted(root)))
    )
    if "error" in reply and not _bubblewrap_works():
        pytest.skip(f"this machine cannot confine a process: {reply['error']['message']}")
    assert reply["result"]["sandboxType"] == "linuxSeccomp"
    client.story("probe")
    assert client.exit_code("probe") == 0
    return client


def _bubblewrap_works() -> bool:
    program = shutil.which("bwrap")
    if program is None or os.environ.get("TREADLE_SANDBOX") == "landlock":
        return False
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_confined_process_writes_only_where_it_may(confining: ExecClient, root: Path) -> None:
    outside = root.parent / "outside"
    script = f"touch ok.txt && cat {__file__} >/dev/null && touch .git/hook; touch {outside}"
    code, output = confining.run("p", ["/bin/sh", "-c", script], root, sandbox=restricted(root))
    assert code != 0
    assert (root / "ok.txt").exists()
    assert not outside.exists()
    assert not (root / ".git" / "hook").exists()
    assert confining.wait_for_process("process/exited", "p")["sandboxDenied"] is True, output
    assert confining.call("process/read", {"processId": "p"})["sandboxDenied"] is True


def test_a_confined_process_has_the_network_only_when_granted(
    confining: ExecClient, server: ServerProcess, root: Path
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash, which can open a connection by itself, is not installed")
    port = Address.parse(server.url).port
    argv = [bash, "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"]
    for name, network, works in (("with", "enabled", True), ("without", "restricted", False)):
        code, output = confining.run(name, argv, root, sandbox=restricted(root, network=network))
        assert (code == 0, b"connected" in output) == (works, works)


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
def test_a_confined_process_is_a_process(confining: ExecClient, root: Path, marker: str, tty: bool) -> None:
    sandbox = restricted(root)
    script = "read x; echo got $x; exit 7"
    confining.start("in", ["/bin/sh", "-c", script], root, sandbox=sandbox, pipeStdin=True, tty=tty)
    assert confining.write("in", b"it\n", "1") == "accepted"
    confining.story("in")
    assert confining.exit_code("in") == 7
    assert b"got it" in confining.output("in")
    confining.start("long", ["sleep", marker], root, sandbox=sandbox, tty=tty)
    assert confining.call("process/terminate", {"processId": "long", "graceMs": 0}) == {"running": True}
    assert confining.story("long")[-1]["method"] == "process/closed"


GLOB: Json = {"path": {"type": "glob_pattern", "pattern": "**/*.env"}, "access": "none"}
UNKNOWN_KIND = special("somewhere_new", "read")
UNKNOWN_ACCESS = special("root", "sometimes")


@pytest.mark.parametrize("entry", [GLOB, UNKNOWN_KIND, UNKNOWN_ACCESS], ids=["glob", "kind", "access"])
def test_what_cannot_be_enforced_is_refused(client: ExecClient, root: Path, entry: Json) -> None:
    params = start_params("p", ["touch", "ran"], root, sandbox=restricted(root, entry))
    code, text = client.failure("process/start", params)
    assert code == -32600
    assert "refused rather than run unconfined" in text
    assert client.call("process/list") == {"processes": []}
    write = {"path": (root / "ran").as_uri(), "dataBase64": "", "sandbox": restricted(root, entry)}
    assert client.failure("fs/writeFile", write)[0] == -32600
    assert not (root / "ran").exists()


def test_managed_permissions_without_a_file_system_are_refused(client: ExecClient, root: Path) -> None:
    sandbox = {"permissions": {"type": "managed", "network": "enabled"}}
    assert client.failure("process/start", start_params("p", ["touch", "ran"], root, sandbox=sandbox))[0] == -32600
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    "permissions",
    [
        {"type": "disabled"},
        {"type": "external", "network": "restricted"},
        {"type": "managed", "network": "enabled", "file_system": {"type": "unrestricted"}},
    ],
    ids=lambda permissions: permissions["type"],
)
def test_no_confinement_when_none_was_asked_for(client: ExecClient, root: Path, permissions: Json) -> None:
    sandbox = {"permissions": permissions}
    assert client.start("p", ["touch", str(root.parent / "outside")], root, sandbox=sandbox)["sandboxType"] == "none"
    assert client.exit_code("p") == 0
    assert (root.parent / "outside").exists()
