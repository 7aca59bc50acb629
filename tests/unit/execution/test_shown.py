"""What is shown of environments, addresses and params: where they are, and no values that may be secrets."""

from __future__ import annotations

import pytest

from treadle.errors import ExecError
from treadle.execution import Environment, EnvPolicy, ExecParams
from treadle.protocol.exec import StartParams
from treadle.tools import CommandSpec
from treadle.transport import AccessControl, Address, AddressError, Head, Upgrade, shown_url

SECRET = "s3cr3t-of-the-house"
POLICY = EnvPolicy(inherit="all", ignore_default_excludes=True, exclude=(), set={"KEY": SECRET}, include_only=())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("ws://127.0.0.1:8765", "ws://127.0.0.1:8765"),
        ("ws://127.0.0.1:8765/", "ws://127.0.0.1:8765"),
        (f"ws://127.0.0.1:8765/{SECRET}", "ws://127.0.0.1:8765/…"),
        (f"wss://[::1]:8765/a/{SECRET}?x=1", "wss://[::1]:8765/…"),
        (f"ws://host?token={SECRET}", "ws://host/…"),
        (f"wss://me:{SECRET}@host/", "wss://host"),
        (f"host:8765/{SECRET}", "host:8765/…"),
        ("unix:///run/treadle.sock", "unix:///run/treadle.sock"),
        ("/run/treadle.sock", "/run/treadle.sock"),
        ("stdio://", "stdio://"),
        ("", ""),
    ],
)
def test_an_address(given: str, shown: str) -> None:
    assert shown_url(given) == shown


@pytest.mark.parametrize(
    "thing",
    [
        Address.parse(f"ws://127.0.0.1:1/{SECRET}"),
        Upgrade.new("host", f"/{SECRET}", SECRET),
        AccessControl(token=SECRET),
        Head(f"GET /{SECRET} HTTP/1.1", {"authorization": f"Bearer {SECRET}"}),
        ExecParams(process_id="p", argv=["ls"], cwd="/", env={"KEY": SECRET}, env_policy=POLICY),
        StartParams(process_id="p", argv=("ls",), cwd="/", env={"KEY": SECRET}, tty=False, env_policy=POLICY),
        CommandSpec(command=("ls",), cwd="/", env={"KEY": SECRET}, env_policy=POLICY),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_nothing_shows_a_secret(thing: object) -> None:
    assert SECRET not in repr(thing)
    assert repr(thing).startswith(f"{type(thing).__name__}(")


@pytest.mark.parametrize("text", [f"ws://a b/{SECRET}", f"ws://h:99999/{SECRET}", f"http://host/{SECRET}"])
def test_an_address_that_is_none_is_named_without_its_path(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert SECRET not in str(caught.value)


@pytest.mark.anyio
async def test_an_environment_says_where_it_is() -> None:
    async with await Environment.connect() as env:
        assert repr(env) == "<Environment on this machine>"
    with pytest.raises(ExecError) as caught:
        await Environment.connect(f"ws://127.0.0.1:1/{SECRET}", token=SECRET, recovery_s=0)
    assert SECRET not in str(caught.value)
