"""The table of interop: what becomes of outcomes, and that only a run of all tests writes it. No peer is needed."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripts.install_peers import PEERS

from interop import interop_table
from interop.interop_table import CLIENTS, PROPERTY, ROOT, Cell, InteropTable, Rows, sides_of

DAY = datetime.date(2026, 11, 16)
CONFTEST = f"""\
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}]
from pathlib import Path
from interop.interop_table import InteropTable

def pytest_configure(config):
    config.addinivalue_line("markers", "scenario(client, name): a row")
    config.addinivalue_line("markers", "interop: as here")
    config.pluginmanager.register(InteropTable(config, Path(__file__).with_name("table.md")), "interop-table")
"""
TESTS = """\
import pytest
pytestmark = pytest.mark.interop

@pytest.mark.scenario(client="codex-acp", name="message")
@pytest.mark.parametrize("server", ["ours", "codex"])
def test_message(server): pass

@pytest.mark.scenario(client="codex-acp", name="fork")
@pytest.mark.parametrize("server", ["ours", "codex"])
def test_fork(server): assert server == "codex"

@pytest.mark.scenario(client="TypeScript SDK", name="message")
def test_both(): pass

@pytest.mark.scenario(client="hermes-agent", name="message")
@pytest.mark.parametrize("server", ["ours", "codex"])
def test_hermes(server): pytest.skip("no network | today\\nsecond line")

@pytest.mark.scenario(client="hermes-agent", name="compact")
@pytest.mark.parametrize("server", ["ours"])
@pytest.mark.xfail(strict=True, reason="the moon is full")
def test_moon(server): assert False
"""


def report(
    outcome: str, *, when: str = "call", client: str = "codex-acp", name: str = "message", sides: tuple[str, ...] = ()
) -> pytest.TestReport:
    made = pytest.TestReport("t", ("t", 1, "t"), {}, outcome, None, when)  # type: ignore[arg-type]
    made.user_properties = [(PROPERTY, [client, name, list(sides or ("ours", "codex"))])]
    return made


def cell(*reports: pytest.TestReport) -> str:
    rows = Rows()
    for made in reports:
        rows.add(made)
    return str(rows.cells.get(("codex-acp", "message", "ours"), Cell()))


def test_a_scenario_passes_when_all_its_tests_do() -> None:
    assert cell() == "not tried"
    assert cell(report("passed", when="setup")) == "not tried"
    assert cell(report("passed")) == "yes"
    assert cell(report("passed"), report("failed"), report("passed")) == "**no**"
    assert cell(report("failed", when="setup")) == "**no**"
    assert cell(report("passed"), report("failed", when="teardown")) == "**no**"
    assert cell(report("passed", sides=("codex",))) == "not tried"


def test_the_server_is_that_of_the_parameters() -> None:
    assert sides_of({}) == ("ours", "codex")
    assert sides_of({"server": "codex", "other": 1}) == ("codex",)
    assert sides_of({"side": ("treadle", "sync")}) == ("ours",)
    assert sides_of({"side": ("real", "async")}) == ("codex",)


def test_rows_are_in_the_same_order_whatever_came_first() -> None:
    names = ["title", "fork", "message", "a new one", "start-up"]
    texts = set()
    for order in (names, names[::-1]):
        rows = Rows()
        for name in order:
            for client in ("a client of tomorrow", "codex-acp", "codex TUI"):
                rows.add(report("passed", client=client, name=name))
        texts.add(rows.text(DAY))
    [text] = texts
    assert text.index("## codex TUI") < text.index("## codex-acp") < text.index("## a client of tomorrow")
    positions = [text.index(f"| {name} |") for name in ("start-up", "message", "fork", "a new one", "title")]
    assert positions == sorted(positions)


def test_every_client_is_a_peer() -> None:
    assert {name for client in CLIENTS.values() for name in (client.peer, client.codex)} <= set(PEERS)


def test_a_run_of_everything_writes_the_table(tmp_path: Path) -> None:
    """By the workers of a run, whose controller has the table."""
    folder = tmp_path
    tests = folder / "tests" / "interop"
    tests.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_clients.py").write_text(TESTS)
    plain = ("-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *plain, "-n", "2", "-m", "interop", "tests/interop"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    text = (tests / "table.md").read_text()
    version, codex = PEERS["codex-acp"].version, PEERS["codex-npm"].version
    day = datetime.datetime.now(datetime.UTC).date()
    assert f"| codex-acp | {version} | 2 | 1 | 2 (codex {codex}) | {day} |" in text
    assert "| message | yes | yes |\n| fork | **no** | yes |" in text
    assert f"## TypeScript SDK {PEERS['codex-ts-sdk'].version}" in text
    assert "| message | skipped: no network / today | skipped: no network / today |" in text
    assert "| compact | **no**: the moon is full | not tried |" in text


def finish(
    folder: Path, arguments: list[str], *, stopped: bool = False, worker: bool = False, **options: object
) -> bool:
    """Whether the end of a run that was called like this writes the table."""
    config = SimpleNamespace(
        option=SimpleNamespace(**{"markexpr": "interop", "keyword": "", "lf": False, **options}),
        args=arguments,
        rootpath=folder,
        invocation_params=SimpleNamespace(dir=folder),
        **({"workerinput": {}} if worker else {}),
    )
    table = InteropTable(config, folder / "table.md")  # type: ignore[arg-type]
    table.pytest_runtest_logreport(report("passed"))
    session = SimpleNamespace(shouldfail=False, shouldstop="stopping after 1 failures" if stopped else False)
    table.pytest_sessionfinish(session, pytest.ExitCode.OK)  # type: ignore[arg-type]
    return (folder / "table.md").exists()


def test_a_run_of_something_else_leaves_the_table_alone(tmp_path: Path) -> None:
    whole = ["tests/interop"]
    assert not finish(tmp_path, ["tests"])
    assert not finish(tmp_path, [*whole, "tests/unit"])
    assert not finish(tmp_path, ["tests/interop/clients"])
    assert not finish(tmp_path, ["tests/interop/test_same_answers.py::test_files"])
    assert not finish(tmp_path, whole, markexpr="not interop")
    assert not finish(tmp_path, whole, keyword="acp")
    assert not finish(tmp_path, whole, lf=True)
    assert not finish(tmp_path, whole, worker=True)
    assert not finish(tmp_path, whole, stopped=True)
    assert finish(tmp_path, whole)
    (tmp_path / "table.md").unlink()
    assert finish(tmp_path, whole, markexpr="scenario")


def test_the_table_is_where_the_docs_are() -> None:
    assert interop_table.FILE.relative_to(ROOT) == Path("docs/interop.md")
