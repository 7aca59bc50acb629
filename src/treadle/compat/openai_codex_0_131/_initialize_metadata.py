"""What a server must say of itself, where later builds of `openai_codex` 0.131 had it."""

from treadle.client import lifecycle as metadata

validate_initialize_metadata = metadata.check_metadata
