"""Earlier versions of the official SDK, on top of our client: programs for them run after changing their import.

`codex_app_server` is the package before it was renamed, `openai_codex_0_131` its first release under the new name. Each
has the names, parameters and results of its time. Below them is `treadle.client`, so the server is ours unless the
config says otherwise, and requests that nobody answers are declined.
"""
