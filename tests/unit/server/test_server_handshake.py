"""The handshake without I/O: who the client is, and what it is answered."""

from __future__ import annotations

import pytest

from treadle import __version__
from treadle._version import PROTOCOL_VERSION
from treadle.errors import RpcError
from treadle.protocol.app import InitializeParams, decode
from treadle.server import shake_hands, user_agent


def params(name: str = "probe", version: str = "1.2", capabilities: str = "null") -> InitializeParams:
    info = f'{{"name":"{name}","version":"{version}"}}'
    return decode(f'{{"clientInfo":{info},"capabilities":{capabilities}}}'.encode(), InitializeParams)


def test_a_plain_client() -> None:
    identity, answer = shake_hands(params(), "/home/of/it")
    assert (identity.name, identity.version, identity.experimental) == ("probe", "1.2", False)
    assert identity.opted_out == frozenset()
    assert (answer.codex_home, answer.user_agent) == ("/home/of/it", identity.user_agent)


def test_what_a_client_asks_for() -> None:
    wanted = '{"experimentalApi":true,"optOutNotificationMethods":["warning"]}'
    identity, _ = shake_hands(params(capabilities=wanted), "/")
    assert (identity.experimental, identity.opted_out) == (True, frozenset({"warning"}))


@pytest.mark.parametrize("name", ["", "two\\nlines", "caf\\u00e9"])
def test_a_name_that_would_break_a_header(name: str) -> None:
    with pytest.raises(RpcError, match=r"Invalid clientInfo\.name"):
        shake_hands(params(name), "/")


def test_the_user_agent_has_both_versions_and_nothing_that_breaks_a_header() -> None:
    told = user_agent("probe", "1\r\nEvil: yes")
    assert told.startswith(f"probe/{PROTOCOL_VERSION} (")
    assert told.endswith(f"treadle/{__version__} (probe; unknown)")
