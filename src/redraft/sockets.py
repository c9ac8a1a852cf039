"""The socket that a server of ours listens at."""

from __future__ import annotations

import socket

from redraft.errors import ConfigError


def listen_at(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket that listens. Raises `ConfigError` where that cannot be."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # with its protocol named, asyncio sends small packets at once: else each reply waits 40 ms for an acknowledgement
        found = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(backlog)
        except OSError:
            found.close()
            raise
        return found
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
