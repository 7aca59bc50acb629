from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from schema_proof import judged, listen_in

# What the machine of whoever runs the tests has set must not decide which model answers, here and in children.
for _name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "TREADLE_MODEL", "TREADLE_MODEL_PROVIDER"):
    os.environ.pop(_name, None)
# Nor what is logged, and where.
for _name in ("TREADLE_LOG", "TREADLE_LOG_FORMAT", "TREADLE_LOG_FILE"):
    os.environ.pop(_name, None)

# Whoever runs the tests in the background (`nohup`, `&`) ignores these signals, and so would every child.
for _number, _handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes says how busy the machine is, not whether the code is right. Each run tries other examples,
# and a change is tested in two (on two versions of Python); what needs more to be found says so itself.
settings.register_profile("treadle", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("treadle")


# The API in which the agent asks its model; `AppServerHarness` reads it. Set for a whole run (`make wires`), everything
# runs on that one except what is about another; else on Responses, and what is marked `every_wire` on all three.
WIRE_VARIABLE = "TREADLE_WIRE_API"
WIRES = ("responses", "chat", "anthropic")
GIVEN_WIRE = os.environ.get(WIRE_VARIABLE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked, own = (metafunc.definition.get_closest_marker(name) for name in ("every_wire", "responses_wire"))
    if GIVEN_WIRE is None and marked is not None and own is None:
        metafunc.parametrize("wire_api", WIRES, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end, so the garbage collector need not look through it: in each of some hundred
    tests that call it (`gc.collect`), that takes longer than the test itself.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if GIVEN_WIRE in (None, "responses"):
        return
    others = [item for item in items if item.get_closest_marker("responses_wire") is not None]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


@pytest.fixture(autouse=True)
def wire_api(request: pytest.FixtureRequest) -> Iterator[str]:
    """The API in which the model is asked in this test."""
    wanted = getattr(request, "param", None)
    if wanted is None:
        yield GIVEN_WIRE or "responses"
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WIRE_VARIABLE, wanted)
        yield wanted


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
