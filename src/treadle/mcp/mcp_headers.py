"""The headers that an HTTP server is configured with: fixed ones, those of variables, what a helper prints, the token.

Their values are secrets: they are learned, so that no log shows them, and no error quotes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.errors import ExecError, ExecTimeout
from treadle.llm.provider import FORBIDDEN_IN_HEADER, HEADER_NAME
from treadle.mcp.mcp_messages import McpError
from treadle.secrets import learn

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.execution.environment import Environment
    from treadle.mcp.oauth_tokens import ServerTokens

HELPER_S: Final = 30.0
MAX_HELPER_OUTPUT: Final = 64 << 10


class HeaderSource:
    """Call `open` at the begin of a session, and `current` for every request."""

    def __init__(
        self,
        config: McpServerConfig,
        environ: Mapping[str, str],
        *,
        cwd: str,
        environment: Callable[[], Awaitable[Environment]],
        tokens: ServerTokens | None,
    ) -> None:
        self._config = config
        self._environ = environ
        self._cwd = cwd
        self._environment = environment
        self._tokens = tokens
        self._fixed: dict[str, str] = {}
        self._token: str | None = None

    async def open(self) -> None:
        """Raises `McpError` for what is missing."""
        config, environ = self._config, self._environ
        headers = {name.lower(): value for name, value in config.http_headers.items()}
        for name, variable in config.env_http_headers.items():
            if environ.get(variable):
                headers[name.lower()] = environ[variable]
        if config.http_headers_helper is not None:
            headers |= await self._ask_helper(config.http_headers_helper)
        if config.bearer_token_env_var is not None:
            token = environ.get(config.bearer_token_env_var)
            if not token:
                missing = (
                    f"Environment variable {config.bearer_token_env_var} for MCP server `{config.name}` is not set"
                )
                raise McpError("start", missing)
            headers["authorization"] = f"Bearer {token}"
            learn([token])
        for name, value in headers.items():
            if not HEADER_NAME.fullmatch(name) or FORBIDDEN_IN_HEADER.search(value):
                raise McpError("start", f"the HTTP header {name!r} holds characters that are not allowed")
        learn(headers.values())
        self._fixed = headers

    async def current(self) -> dict[str, str]:
        if self._tokens is None or "authorization" in self._fixed:
            return self._fixed
        self._token = await self._tokens.token()
        return self._fixed if self._token is None else {**self._fixed, "authorization": f"Bearer {self._token}"}

    async def refused(self) -> bool:
        """The server does not take who we are: whether there is something new to try."""
        if self._config.http_headers_helper is not None:
            before = self._fixed
            await self.open()
            return self._fixed != before
        if self._tokens is None or "authorization" in self._fixed:
            return False
        token = await self._tokens.token(refused=self._token)
        return token is not None and token != self._token

    def not_logged_in(self, status: int) -> str:
        name, variable = self._config.name, self._config.bearer_token_env_var
        if variable is not None:
            return f"The {name} MCP server refuses the token in the environment variable {variable} (HTTP {status})."
        if "authorization" in self._fixed:
            return f"The {name} MCP server refuses the authorization header that is configured for it (HTTP {status})."
        return f"The {name} MCP server is not logged in. Run `treadle mcp login {name}`."

    async def too_little(self, scopes: Sequence[str]) -> McpError:
        """The server knows who we are, and wants more scopes for what it was asked (HTTP 403)."""
        name = self._config.name
        needed = f"the scope `{' '.join(scopes)}`" if scopes else "more scopes"
        if self._tokens is None or "authorization" in self._fixed:
            return McpError("scope", f"The {name} MCP server wants {needed}, which its configured token does not have.")
        await self._tokens.want(scopes)
        also = "" if scopes else " --scopes SCOPE,..."
        text = f"The {name} MCP server wants {needed} beyond those of its login. Run `treadle mcp login {name}{also}`."
        return McpError("scope", text)

    async def _ask_helper(self, command: str) -> dict[str, str]:
        """What a command prints: one JSON object of texts. What it prints is a secret, also where it is wrong."""
        problem = f"http_headers_helper of the MCP server `{self._config.name}`"
        try:
            environment = await self._environment()
            done = await environment.run(["/bin/sh", "-c", command], cwd=self._cwd, env=self._environ, timeout=HELPER_S)
        except ExecTimeout:
            raise McpError("start", f"{problem} did not end within {HELPER_S:g} s") from None
        except ExecError as error:
            raise McpError("start", f"{problem} cannot be run: {error.message}") from None
        if done.exit_code != 0:
            raise McpError("start", f"{problem} failed (exit code {done.exit_code})")
        try:
            printed = msgspec.json.decode(done.stdout[:MAX_HELPER_OUTPUT], type=dict[str, str])
        except msgspec.DecodeError:
            raise McpError("start", f"{problem} printed something other than a JSON object of texts") from None
        return {name.lower(): value for name, value in printed.items()}
