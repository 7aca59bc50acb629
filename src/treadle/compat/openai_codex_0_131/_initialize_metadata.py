"""What a server must say of itself, where later builds of `openai_codex` 0.131 had it."""

from treadle.client.metadata import check_metadata as validate_initialize_metadata

__all__ = ["validate_initialize_metadata"]
