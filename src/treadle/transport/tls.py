"""TLS: the certificate of a listener, in two files that may be renewed while it runs, and what clients trust.

It owns who may read the key, and what is said of files that cannot be used. It knows nothing of addresses and tokens:
TLS says which server this is, and the token who the client is; unless clients must have certificates too, whose names
then stand beside the tokens, or in their place.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from typing import Final, Never

from treadle.errors import ChannelClosed
from treadle.transport.address import ListenError

logger: logging.Logger = logging.getLogger(__name__)

# How often to look whether the files have changed, at most: with a new connection.
LOOK_S: Final = 1.0
# A group may read the key (of a machine whose servers share it); write it, or be anybody else, nobody may.
_PRIVATE: Final = 0o027
_TRUST: Final = (
    "if you trust it, give the client a PEM file with the certificate of its issuer: ca_file=…, or the variable "
    "SSL_CERT_FILE"
)


class TlsFiles:
    """The certificate (with those of its issuers behind it) and the key of a listener, as PEM files.

    Raises `ListenError` when they cannot be used. Files that have changed are used for the connections that come then;
    when the new ones cannot be, that is logged and the old ones go on, until they change again. `client_ca` has the
    issuers of certificates that clients must show, as PEM.
    """

    def __init__(self, certificate: str, key: str, client_ca: str | None = None) -> None:
        self._certificate = os.path.abspath(os.path.expanduser(certificate))
        self._key = os.path.abspath(os.path.expanduser(key))
        self._client_ca = None if client_ca is None else os.path.abspath(os.path.expanduser(client_ca))
        self._mark = self._look()
        self._looked_at = time.monotonic()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            mark = self._look()
            if mark != self._mark:
                self._mark = mark
                try:
                    self._context = self._load()
                    logger.warning("the certificate in %s was renewed", self._certificate)
                except ListenError as error:
                    logger.warning("%s; the certificate from before is still in use", error)
        return self._context

    def _look(self) -> tuple[object, ...]:
        """How the files look, wherever links lead: programs that renew them swap links."""
        looks: list[object] = []
        for path in filter(None, (self._certificate, self._key, self._client_ca)):
            try:
                status = os.stat(path)
            except OSError:
                looks.append(None)
            else:
                looks.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode))
        return tuple(looks)

    def _load(self) -> ssl.SSLContext:
        for path in (self._certificate, self._key):
            try:
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
            except OSError as error:
                raise ListenError(f"{path} cannot be read: {error.strerror}") from None
        if status.st_uid not in (0, os.geteuid()):
            raise ListenError(f"the key {self._key} belongs to another user (id {status.st_uid})")
        if status.st_mode & _PRIVATE:
            raise ListenError(
                f"the key {self._key} has mode {status.st_mode & 0o777:04o}: others can read or change it. "
                f"chmod 600 {self._key}, and replace it if others may have read it"
            )

        def no_password() -> Never:
            raise ListenError(f"the key {self._key} has a password, and nobody could type it: store it without one")

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ListenError(f"{self._key} is not the key of the certificate in {self._certificate}") from None
            what = error.reason or str(error)
            raise ListenError(
                f"{self._certificate} and {self._key} are no certificate and key in PEM form ({what})"
            ) from None
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self._client_ca)
            except OSError as error:  # an SSLError is an OSError
                why = getattr(error, "reason", None) or error.strerror or error
                raise ListenError(f"{self._client_ca} cannot be used for issuers of clients: {why}") from None
        return context


def name_of_client(connection: object) -> str | None:
    """The common name in the certificate that a client has shown; None without one, or with several."""
    shown = connection.getpeercert() if isinstance(connection, ssl.SSLObject) else None
    subject: tuple[tuple[tuple[str, str], ...], ...] = (shown or {}).get("subject", ())  # type: ignore[assignment]
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


def client_context(ca_file: str | None, cert_file: str | None = None, key_file: str | None = None) -> ssl.SSLContext:
    """What a client trusts: the issuers in a PEM file and no others, or those of the system; and the certificate that
    it shows. Raises `ChannelClosed`."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ChannelClosed(f"the CA file {ca_file} cannot be used: {why}") from None
    if cert_file is not None:

        def no_password() -> Never:
            raise ChannelClosed(f"the key of {cert_file} has a password, and nobody could type it")

        try:
            context.load_cert_chain(cert_file, key_file, no_password)
        except OSError as error:
            why = getattr(error, "reason", None) or error.strerror or error
            raise ChannelClosed(f"the certificate {cert_file} and its key cannot be used: {why}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def problem_of(error: OSError) -> str | None:
    """Why a connection was refused because of TLS, and what to do; None when it was something else."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}; {_TRUST}"
    if isinstance(error, ssl.SSLError):
        if "CERTIFICATE_REQUIRED" in (error.reason or "") or "ALERT_UNKNOWN_CA" in (error.reason or ""):
            return "the server wants a client certificate of an issuer that it knows: cert_file=… and key_file=…"
        return f"TLS failed ({error.reason or error}): is it a server with a certificate? One without has ws://"
    return None
