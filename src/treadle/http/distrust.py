"""Why TLS refuses a server, in words that say what to do.

Owns the table. The library's own words are used for what is not in it; they quote nothing secret.
"""

from __future__ import annotations

import sys
from typing import Final

_TRUST: Final = (
    "if you trust it, set the environment variable SSL_CERT_FILE to a PEM file with the certificate of its issuer"
    " and start again"
)
# By the codes of OpenSSL (X509_V_ERR_…).
_CERTIFICATES: Final = {
    2: ("is from an issuer that is not known here", _TRUST),
    9: ("is not valid yet", "look at the clocks of both machines"),
    10: ("has expired", "it has to be renewed there; also look at the clock of this machine"),
    18: ("is self-signed", _TRUST),
    19: ("is self-signed, or that of its issuer is", _TRUST),
    20: ("is from an issuer that is not known here", _TRUST),
    21: ("comes without that of its issuer", _TRUST),
    62: ("is for another host name", "correct base_url, or use the name in the certificate"),
    64: ("is for another address", "correct base_url, or use the name in the certificate"),
}
# What a server without TLS makes of our first bytes.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


def distrust_of(error: OSError) -> str | None:
    """None for a failure that is none of TLS, or that may pass."""
    ssl = sys.modules.get("ssl")  # without it there was no TLS
    if ssl is None or not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        is_so, advice = _CERTIFICATES.get(error.verify_code, (f"is refused ({error.verify_message})", _TRUST))
        return f"the certificate of the model server {is_so}; {advice}"
    if getattr(error, "reason", None) in _NO_TLS:  # not every one of them has it
        return "the model server does not speak TLS; is its base_url http:// rather than https://?"
    return None
