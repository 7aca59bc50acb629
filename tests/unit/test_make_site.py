"""What `make docs` does around zensical: links out of docs/, and nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.make_site import loaded_from_elsewhere, within_the_site


def test_links_to_the_top_of_the_repository_stay_in_the_site() -> None:
    text = "[a](../CONTRIBUTING.md#style) [b](../README.md) [c](sdk.md) [d](../CHANGELOG.md)"
    assert within_the_site(text, "../") == "[a](contributing.md#style) [b](index.md) [c](sdk.md) [d](changelog.md)"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://cdn.example.com/a.js"></script>'),
        ("a.html", "<img alt='x' src=//cdn.example.com/a.png>"),
        ("a.html", '<link rel="stylesheet" href="https://fonts.example.com/a.css">'),
        ("a.css", "@import 'https://fonts.example.com/a.css';"),
        ("a.css", "body { background: url(https://cdn.example.com/a.png) }"),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(loaded_from_elsewhere(tmp_path))) == 1


def test_links_that_a_reader_follows_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://example.com">x</a><link rel="canonical" href="https://e.com/">')
    (tmp_path / "b.html").write_text('<script src="assets/a.js"></script><img src="pictures/a.svg">')
    assert list(loaded_from_elsewhere(tmp_path)) == []
