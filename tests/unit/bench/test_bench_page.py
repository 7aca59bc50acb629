"""What `make bench` writes into the page of measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import page
from scripts.page_parts import with_part

PARTS = ("exec-server", "app-server", "app-server-threads", "app-server-history", "sdk")


@pytest.mark.parametrize("name", PARTS)
def test_every_table_has_its_place(name: str) -> None:
    written = with_part(page.PAGE.read_text(), name, "| a table |")
    assert f"<!-- made: {name} -->\n\n| a table |\n\n<!-- end: {name} -->" in written


def test_it_says_when_and_where_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "performance.md"
    target.write_text("before\n<!-- made: sdk -->\nold\n<!-- end: sdk -->\nafter\n")
    monkeypatch.setattr(page, "PAGE", target)
    page.write_part("sdk", {"cpu": "2 cores"}, "| new |")
    text = target.read_text()
    assert text.startswith("before\n<!-- made: sdk -->\n\nMeasured on 2")
    assert "cpu: 2 cores.\n\n| new |\n\n<!-- end: sdk -->\nafter" in text
    assert "old" not in text
