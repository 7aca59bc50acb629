"""How well a path fits some letters."""

from __future__ import annotations

import pytest

from treadle.execution import match, split_query


@pytest.mark.parametrize(
    ("query", "path", "score"),
    [
        ("main", "dir_main", 104),
        ("main", "m/a/i/n", 100),
        ("main", "src/app/domain.py", 76),
        ("MAIN", "ABC/Main.PY", 109),
        ("mpy", "src/app/main.py", 76),
        ("mpy", "src/app/domain.py", 58),
        ("src main", "src/app/domain.py", 160),
        ("s/a/m", "src/app/main.py", 108),
        ("s/a/m", "src/app/domain.py", 95),
        ("main.py", "src/app/domain.py", 148),
        ("app/main", "src/app/main.py", 209),
        ("readme", "README.md", 159),
        ("y", "y.txt", 34),
    ],
)
def test_scores_are_those_of_the_real_server(query: str, path: str, score: int) -> None:
    found = match(split_query(query), path)
    assert found is not None
    assert found.score == score
    assert "".join(path[index] for index in found.indices).lower() == query.replace(" ", "").lower()


@pytest.mark.parametrize(("query", "path"), [("nm", "main"), ("mainn", "main"), ("a b", "a"), ("é", "e")])
def test_letters_have_their_order(query: str, path: str) -> None:
    assert match(split_query(query), path) is None


def test_letters_that_grow_in_lower_case_keep_their_place() -> None:
    found = match(["x"], "\u0130x")
    assert found is not None
    assert found.indices == (1,)
