"""The errors, under the names that they had."""

from treadle.client import sdk_errors
from treadle.client.sdk_errors import *  # noqa: F403

AppServerError = sdk_errors.CodexError
AppServerRpcError = sdk_errors.CodexRpcError
