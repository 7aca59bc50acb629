"""`treadle models`: the table."""

from __future__ import annotations

from treadle.cli import models_table
from treadle.llm import ModelListing, Price


def test_columns_with_what_is_known() -> None:
    price = Price(input=2.0, cached_input=0.125, output=10.0)
    offers = [
        ModelListing(id="known", name="Known", context_window=1_000_000, output_limit=8192, price=price),
        ModelListing(id="other\x1b[31m", name="x"),
    ]
    shown = models_table(offers, "known").splitlines()
    assert shown[0].split() == ["model", "context", "output", "in", "cached", "out"]
    assert shown[1].split() == ["known", "*", "1,000,000", "8,192", "$2.00", "$0.125", "$10.00"]
    assert len(shown) == 3
    assert "\x1b" not in shown[2]
