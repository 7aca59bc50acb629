"""Certificates for tests, made by the program `openssl`: an issuer, and what it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    certificate: Path
    key: Path


def make_issuer(folder: Path, name: str = "issuer") -> Certificate:
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", made.key, "-out", made.certificate, "-subj", f"/CN={name}")
    return made


def sign(
    issuer: Certificate, folder: Path, name: str = "server", places: str = "IP:127.0.0.1,DNS:localhost"
) -> Certificate:
    """A certificate for these places. Its key is the owner's alone."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    request, extension = folder / f"{name}.csr", folder / f"{name}.ext"
    extension.write_text(f"subjectAltName={places}\n")
    _openssl("req", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", issuer.certificate, "-CAkey", issuer.key, "-CAcreateserial"),
        *("-days", "2", "-extfile", extension, "-out", made.certificate),
    )
    made.key.chmod(0o600)
    return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=60)
