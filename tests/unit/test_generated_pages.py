"""The generated parts of pages are what `make generate` would write now."""

from __future__ import annotations

from types import ModuleType

import pytest
from scripts import make_architecture, make_command_line, make_configuration, make_readme
from scripts.page_parts import filled, with_part

PAGES = (make_architecture, make_command_line, make_configuration, make_readme)


@pytest.mark.parametrize("generator", PAGES, ids=lambda module: module.TARGET.name)
def test_a_page_is_up_to_date(generator: ModuleType) -> None:
    page = generator.TARGET.read_text()
    assert filled(page, generator.parts()) == page, "run `make generate`"


def test_the_summary_of_the_measurements_is_that_of_the_readme() -> None:
    page = make_readme.PERFORMANCE.read_text()
    assert with_part(page, "measured", make_readme.parts()["measured"]) == page, "run `make generate`"


def test_other_places_than_parts_are_an_error() -> None:
    page = "# A page\n\n<!-- made: one -->\nold\n<!-- end: one -->\n\nMore.\n"
    assert filled(page, {"one": "new\n"}) == "# A page\n\n<!-- made: one -->\n\nnew\n\n<!-- end: one -->\n\nMore.\n"
    with pytest.raises(SystemExit, match="places for"):
        filled(page, {"two": "new"})
    with pytest.raises(SystemExit, match="end: one"):
        filled("<!-- made: one -->\n", {"one": "new"})
