"""Why a request got no response, in words that say what to check.

It owns these texts. They depend only on the type of the error: the text of someone else's error may quote a secret.
"""

from __future__ import annotations

from typing import Final

from treadle.http.connect_failure import FailureReason
from treadle.http.http_connection import CONNECT_S
from treadle.http.http_errors import ConnectFailed, ConnectionLost, HttpUnusable, IdleTimeout, NotHttp, ProxyRefused
from treadle.http.target import BadUrl, Target
from treadle.llm.failure import absent, cut, unreachable, untrusted
from treadle.llm.model import ModelError
from treadle.llm.provider import Endpoint, ProviderConfig

_SERVER: Final[dict[FailureReason, str]] = {
    "refused": "the model server refuses connections: nothing listens there; start it, or correct base_url",
    "unknown_name": "the host name of the model server is not known; correct base_url, or this machine's DNS",
    "no_lookup": "the host name of the model server cannot be looked up now; is this machine online?",
    "no_network": "there is no way from this machine to the model server; look at its network, VPN and firewall",
    "timed_out": (
        f"no connection to the model server within {CONNECT_S:.0f} s; look at base_url, and whether a firewall is in"
        " between or a proxy is needed (HTTPS_PROXY)"
    ),
    "tls": "TLS with the model server failed; are base_url and its port those of an https server?",
    "hung_up": "the model server hung up before a connection was made; is base_url right?",
    "other": "cannot connect to the model server; is its base_url right?",
}
_PROXY: Final[dict[FailureReason, str]] = {
    "refused": "refuses connections: nothing listens there",
    "unknown_name": "has a host name that is not known",
    "no_lookup": "has a host name that cannot be looked up now",
    "no_network": "cannot be reached from this machine",
    "timed_out": f"made no connection within {CONNECT_S:.0f} s",
}
_ABSENT: Final[frozenset[FailureReason]] = frozenset({"refused", "unknown_name", "no_lookup", "no_network"})


def request_error(error: Exception, endpoint: Endpoint, config: ProviderConfig) -> ModelError:
    """The `ModelError` for whatever was raised in place of a response."""
    match error:
        case ModelError():
            return error
        case HttpUnusable():
            return ModelError(str(error))
        case ConnectFailed():
            return _no_connection(error, endpoint)
        case ProxyRefused():
            why = f"the proxy refuses the way to the model server (HTTP {error.status})"
            return unreachable(why, endpoint.shown)
        case IdleTimeout():
            # No silent retry: the user has waited this long and should know why.
            return cut(f"no answer from the model server for {config.stream_idle_timeout_ms} ms")
        case ConnectionLost():
            return unreachable("the model server hung up before it answered", endpoint.shown)
        case NotHttp():
            why = f"what the model server answers is no HTTP ({error}); is its base_url right?"
            return unreachable(why, endpoint.shown)
        case BadUrl() | UnicodeError():
            return ModelError(f"the URL of provider `{config.id}` cannot be used; correct its base_url in config.toml")
    return ModelError(f"the request to provider `{config.id}` could not be sent ({type(error).__name__})")


def _no_connection(error: ConnectFailed, endpoint: Endpoint) -> ModelError:
    if error.tls_problem is not None:
        return untrusted(error.tls_problem, endpoint.shown)
    why = _SERVER[error.reason]
    if error.proxy is not None and error.reason in _PROXY:
        why = (
            f"the proxy {_shown(error.proxy)} {_PROXY[error.reason]}; "
            "correct or unset HTTP_PROXY, HTTPS_PROXY or ALL_PROXY in the environment"
        )
    return absent(why, endpoint.shown) if error.reason in _ABSENT else unreachable(why, endpoint.shown)


def _shown(proxy: Target) -> str:
    """Without credentials."""
    return f"{proxy.scheme}://{proxy.tunnel.decode()}"
