"""Which environment variables hold keys, as far as the configuration says so."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.config import secret_variables


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({}, []),
        ({"model_providers": {"a": {"env_key": "A"}, "b": {"env_key": "B", "base_url": "no url"}}}, ["A", "B"]),
        ({"model_providers": {"a": {"env_http_headers": {"x-a": "A", "x-b": "B"}}}}, ["A", "B"]),
        ({"mcp_servers": {"m": {"bearer_token_env_var": "M", "env_http_headers": {"x": "N"}}}}, ["M", "N"]),
        ({"model_providers": {"a": {"env_key": 1, "env_http_headers": ["x"]}, "b": 2}, "mcp_servers": []}, []),
        ({"model_providers": {"a": {"env_key": "", "env_http_headers": {"x": 1}}}}, []),
    ],
)
def test_every_provider_counts_also_one_that_cannot_be_used(document: dict[str, Any], names: list[str]) -> None:
    assert list(secret_variables(document)) == names
