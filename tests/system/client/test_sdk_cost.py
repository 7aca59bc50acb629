"""What a turn and a thread cost, as the SDK has it: summed, kept over a restart, at the price of the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import Codex, CodexConfig
from treadle.testing import AppServerHarness, Usage

USED = Usage(input_tokens=100_000, cached_input_tokens=50_000, output_tokens=10_000)


def opened(harness: AppServerHarness) -> Codex:
    home = str(harness.home)
    return Codex(CodexConfig(env={"CODEX_HOME": home, "TREADLE_HOME": home}, cwd=str(harness.workspace)))


def price(harness: AppServerHarness, dollars: int) -> None:
    path = harness.home / "config.toml"
    text = path.read_text().partition("[models.")[0]
    prices = f"price_input = {dollars}\nprice_cached_input = {dollars / 10}\nprice_output = {dollars}\n"
    path.write_text(f'{text}[models."mock-model"]\n{prices}')


def test_costs_are_summed_and_kept(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        for _ in range(3):
            harness.model.enqueue_assistant_message("ok", usage=USED)
        price(harness, 10)
        with opened(harness) as codex:
            thread = codex.thread_start(model="mock-model")
            for total in (0.65, 1.3):
                usage = thread.run("go").usage
                assert usage is not None
                assert usage.cost_usd == pytest.approx(0.05 * 10 + 0.05 * 1 + 0.01 * 10)
                assert usage.thread_cost_usd == pytest.approx(total)
        price(harness, 20)
        with opened(harness) as codex:
            usage = codex.thread_resume(thread.id).run("go").usage
            assert usage is not None
            assert usage.cost_usd == pytest.approx(1.3)
            assert usage.thread_cost_usd == pytest.approx(2.6)


def test_without_a_price_there_is_no_cost(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, opened(harness) as codex:
        harness.model.enqueue_assistant_message("ok", usage=USED)
        usage = codex.thread_start(model="mock-model").run("go").usage
        assert usage is not None
        assert (usage.cost_usd, usage.thread_cost_usd) == (None, None)
