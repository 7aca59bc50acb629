"""The keyring of the user's desktop, for the tokens of MCP servers: through the package `keyring`, if it is installed.

A keyring may ask its user for a password: whoever has a loop uses it by `off_loop`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from treadle.mcp.oauth import OAuthError

T = TypeVar("T")

SERVICE: Final = "Treadle MCP Credentials"
# Whoever has to type a password has a minute for it.
ACCESS_S: Final = 60.0


def find_keyring(store: str) -> Any:
    """The package, for `keyring` and `auto`; None where tokens go into a file. Raises `OAuthError` when it has to be
    there and is not."""
    if store == "file":
        return None
    try:
        import keyring  # optional, and slow to load
        from keyring.backends.fail import Keyring as NoKeyring
    except ImportError:
        keyring = None
    if keyring is not None and not isinstance(keyring.get_keyring(), NoKeyring):
        return keyring
    if store == "auto":
        return None
    lacks = "the package `keyring` is not installed: pip install keyring"
    if keyring is not None:
        lacks = "there is no keyring on this machine"
    raise OAuthError(f'mcp_oauth_credentials_store is "keyring", and {lacks}; or set it to "file"')


def use_keyring(what: str, work: Callable[[Any], T]) -> T:
    """Do something with the keyring, which may take its time. Raises `OAuthError`."""
    ring = find_keyring("keyring")
    try:
        result: T = work(ring)
    except Exception as error:  # of whichever program keeps it
        raise OAuthError(f"the keyring could not {what} ({type(error).__name__}); is it locked?") from None
    return result


async def off_loop(work: Callable[[], T]) -> T:
    """Do what may use the keyring in a thread of its own, which nothing waits for at the end of the program: a prompt
    may stand there for ever. Raises `OAuthError`, also when that takes too long."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: Exception | None) -> None:
        if not done.cancelled():
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]
            else:
                done.set_exception(error)

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:
            problem = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, result, problem)

    threading.Thread(target=run, name="treadle keyring", daemon=True).start()
    try:
        async with asyncio.timeout(ACCESS_S):
            return await done
    except TimeoutError:
        raise OAuthError(f"the keyring did not answer within {ACCESS_S:.0f} s; is it locked?") from None
