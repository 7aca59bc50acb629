from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from kit.exec_program import COMMAND, running
from kit.postgres import Postgres, running_postgres
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

# Where the folders of tests are. What others leave above them must not make a repository of each: the real codex leaves
# an empty `.git` in /tmp.
for _folder in map(Path, (tempfile.gettempdir(), "/var/tmp")):
    if os.access(_folder, os.W_OK) and not any((above / ".git").exists() for above in (_folder, *_folder.parents)):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_folder))
        break

# How long an example takes says how busy the machine is, not whether the code is right. Each run tries other examples,
# and a change is tested in two (on two versions of Python); what needs more to be found says so itself.
settings.register_profile("treadle", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("treadle")


# The API in which the agent asks its model; `AppServerHarness` reads it. Set for a whole run (`make wires`), everything
# runs on that one except what is about another; else on Responses, and what is marked `every_wire` on all three.
WIRE_VARIABLE = "TREADLE_WIRE_API"
WIRES = ("responses", "chat", "anthropic")
GIVEN_WIRE = os.environ.get(WIRE_VARIABLE)


# Where the agent of the tests works: with `remote` each worker has an exec-server, and threads that name no environment
# work there (`make again`); with `codex` that of the real codex.
WHERE = os.environ.get("TREADLE_TEST_ENVIRONMENT", "local")
# Where the threads of the tests are: in the home of each, or with `postgres` in a database of each worker.
STORE = os.environ.get("TREADLE_TEST_STORE", "sqlite")
os.environ.pop("TREADLE_STORE", None)


def pytest_configure(config: pytest.Config) -> None:
    if WHERE == "codex":
        sys.path.append(str(Path(__file__).parents[1]))  # for `scripts`, which is no part of the package
        from interop.peers import leave_nothing

        leave_nothing(config)


@pytest.fixture(scope="session", autouse=True)
def environment_of_threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if WHERE == "local":
        yield
        return
    folder = tmp_path_factory.mktemp("executor")
    (folder / "user").mkdir()
    command, listen, env = COMMAND, f"unix://{folder / 'socket'}", {"HOME": str(folder / "user")}
    if WHERE == "codex":
        from interop.peers import installed

        command, listen = (str(installed("codex")), "exec-server"), "ws://127.0.0.1:0"
        # It puts the helper that its sandboxes need into its home, unless that is in the temporary directory.
        (folder / "tmp").mkdir()
        env |= {"CODEX_HOME": str(folder / "user"), "TMPDIR": str(folder / "tmp")}
    with running(folder, "--listen", listen, command=command, env=env) as server:
        os.environ["CODEX_EXEC_SERVER_URL"] = server.url
        yield
        del os.environ["CODEX_EXEC_SERVER_URL"]


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker: report of a test that passed only that. Reports of its set-up and its teardown would go to the other
    process too, which is a tenth of the work that a small test makes.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about another wire API, about the machine of an agent that works elsewhere, about the file of
    threads that are in a database, or about what only our executor can do."""
    absent = [] if GIVEN_WIRE in (None, "responses") else ["responses_wire"]
    absent += [] if WHERE == "local" else ["this_machine"]
    absent += [] if STORE == "sqlite" else ["own_file"]
    absent += ["own_executor"] if WHERE == "codex" else []
    others = [item for item in items if any(item.get_closest_marker(name) is not None for name in absent)]
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
def database_of_threads() -> Iterator[Postgres | None]:
    if STORE != "postgres":
        yield None
        return
    with running_postgres() as server:
        yield server


_schemas = itertools.count(1)


@pytest.fixture(autouse=True)
def store_of_threads(database_of_threads: Postgres | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `TREADLE_TEST_STORE=postgres` the threads of each test are in a schema of their own."""
    if database_of_threads is not None:
        monkeypatch.setenv("TREADLE_STORE", database_of_threads.url(f"test_{next(_schemas)}"))


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
