"""Addresses for the processes of one machine."""

import socket

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Finds ports on the loopback that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
