"""A program: standard input and output, connected to a unix socket. Engines start it as an MCP server; the server is
the host at the other end. It ends with either end, and needs nothing but Python, so it is there at once.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])

    def send() -> None:
        while data := os.read(0, 65536):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while data := connection.recv(65536):
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
