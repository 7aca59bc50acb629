"""Turns and threads in notebooks: the same blocks as the export, and nothing gets out of its place."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from thread_samples import MARK, hostile_thread, rich_thread
from treadle import AsyncCodex, Codex, TurnResult
from treadle.client import notebook
from treadle.pages import HtmlPage, item_blocks, thread_html
from treadle.testing import MockModel
from unit.pages.test_html_page import Judge

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'></style></div>"


def judged(html: str) -> Judge:
    judge = Judge()
    judge.feed(html)
    judge.close()
    assert judge.wrong == []
    assert judge.open == []
    return judge


def test_a_thread_shows_the_blocks_of_the_export() -> None:
    thread = rich_thread("/tmp/nowhere.png")
    html = thread_html(thread)
    judged(html)
    items = [item for turn in thread.turns for item in turn.items]
    page = HtmlPage()
    blocks = [page.block(block) for item in items for block in item_blocks(item, thread.cwd)]
    assert len(blocks) > 5
    assert [block for block in blocks if block not in html and "<img" not in block] == []


def test_a_hostile_thread_stays_in_its_place() -> None:
    html = thread_html(hostile_thread())
    judged(html)
    assert html.count("<style>") == html.count("</style>") == 1
    assert MARK not in re.findall(r"<title>(.*?)</title>", html)


def test_a_hostile_result_stays_in_its_place() -> None:
    with MockModel() as model:
        model.enqueue_assistant_message(HOSTILE)
        with Codex(provider="vllm", base_url=model.base_url, model="m") as codex:
            result = codex.thread_start(ephemeral=True).run("hi")
    assert result.final_response == HOSTILE
    assert "alert(1)" in judged(result._repr_html_()).text
    assert TurnResult()._repr_html_()


def test_the_style_is_for_the_frame_alone() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", thread_html(hostile_thread()), re.DOTALL)
    assert style.startswith(".treadle-page {")
    assert not re.search(r"^ *(:root|body) \{", style, re.MULTILINE)
    assert style.count("{") == style.count("}")


def test_of_a_long_thread_the_last_turns_are_shown() -> None:
    thread = rich_thread("/tmp/nowhere.png")
    many = type(thread)(
        **{name: getattr(thread, name) for name in thread.__struct_fields__} | {"turns": thread.turns * 30}
    )
    assert judged(thread_html(many)).text.count("earlier turns") == 1


# --- while it runs ---------------------------------------------------------------------------------------------------


class Notebook:
    """Stands for IPython in a kernel: what was drawn, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: bool = True) -> None:
        self.drawn: list[tuple[str, str]] = []
        self.broken = False
        shell = SimpleNamespace(kernel=object()) if kernel else SimpleNamespace()
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        vars(ipython)["get_ipython"] = lambda: shell
        vars(display)["display"] = self._display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr(notebook, "TICK_S", 0)

    def _display(self, drawing: Any, *, display_id: bool) -> Any:
        assert display_id
        self.drawn.append(("display", drawing._repr_html_()))
        return SimpleNamespace(update=self._update)

    def _update(self, drawing: Any) -> None:
        if self.broken:
            raise OSError("the browser is gone")
        self.drawn.append(("update", drawing._repr_html_()))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))


def check_drawn(page: Notebook, result: TurnResult[None]) -> None:
    assert [where for where, _ in page.drawn[:2]] == ["display", "update"]
    for _, html in page.drawn:
        judged(html)
    assert any("running · " in html and "offline model" in html for _, html in page.drawn)
    assert page.drawn[-1] == ("update", result._repr_html_())


def test_a_turn_is_drawn_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Notebook(monkeypatch)
    with Codex(offline=True) as codex:
        check_drawn(page, codex.thread_start(ephemeral=True).run("look", show=True))
        assert page.drawn
        page.drawn.clear()
        codex.thread_start(ephemeral=True).run("look")
    assert page.drawn == []


@pytest.mark.anyio
async def test_a_turn_of_asyncio_is_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Notebook(monkeypatch)
    async with AsyncCodex(offline=True) as codex:
        thread = await codex.thread_start(ephemeral=True)
        check_drawn(page, await thread.run("look", show=True))


def test_a_notebook_that_is_gone_does_not_end_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Notebook(monkeypatch)
    page.broken = True
    with Codex(offline=True) as codex:
        assert codex.thread_start(ephemeral=True).run("look", show=True).final_response
    assert len(page.drawn) == 1


def test_nothing_is_drawn_without_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Notebook(monkeypatch, kernel=False)
    with Codex(offline=True) as codex:
        thread = codex.thread_start()
        thread.run("look", show=True)
        assert page.drawn == []
        assert "offline model" in (thread._repr_html_() or "")
    assert thread._repr_html_() is None  # nobody can be asked any more
