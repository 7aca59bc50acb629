"""Earlier shapes of the official SDK, over the same client: programs that were written for them run after changing
their import.

`codex_app_server` is the package before it was renamed, `openai_codex_0_131` its first release under the new name. Each
has the names, the parameters and the results of its time; below them is `treadle.client`, so the server is ours unless
the config says otherwise, and what nobody decides about is declined.
"""
