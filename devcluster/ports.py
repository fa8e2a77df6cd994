"""Chooses free loopback ports. A port can be taken between choice and use: the caller starts anew with others then."""

import random
import socket

# Below the range that kernels give to outgoing connections, so that none of those takes a chosen port.
LOWEST, HIGHEST = 15000, 31999


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT counts as free, one that is listened on does not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` different free TCP ports on 127.0.0.1; raises OSError when too few are found."""
    # Random, because two clusters that start at once and search upwards would choose the same.
    candidates = random.sample(range(LOWEST, HIGHEST + 1), k=(HIGHEST - LOWEST) // 4)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"found only {len(found)} of {count} free ports between {LOWEST} and {HIGHEST}")
    return found
