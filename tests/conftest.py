from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from schema_proof import judged, listen_in

# What the machine of whoever runs the tests has set must not decide which model answers, here and in children.
for _name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "TREADLE_MODEL", "TREADLE_MODEL_PROVIDER"):
    os.environ.pop(_name, None)

# Whoever runs the tests in the background (`nohup`, `&`) ignores these signals, and so would every child.
for _number, _handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("treadle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("treadle")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def app_server_is_heard() -> None:
    """Everything that an app-server in this process sends is seen."""
    listen_in()


@pytest.fixture(autouse=True)
def schema_proof(app_server_is_heard: None) -> Iterator[None]:
    """A test in which an app-server sends something against the schema of the protocol fails."""
    with judged():
        yield
