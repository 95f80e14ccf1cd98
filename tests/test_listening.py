"""The socket that servers listen on."""

from __future__ import annotations

import socket

import pytest

from armillary.errors import InputError
from armillary.listening import listen


def test_a_socket_names_its_protocol_and_any_port_is_found() -> None:
    """asyncio leaves Nagle's algorithm on where the protocol is not named, and a small answer then waits for 40 ms."""
    with listen("127.0.0.1", 0) as one:
        assert one.proto == socket.IPPROTO_TCP
        assert one.getsockname()[0] == "127.0.0.1"
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen("127.0.0.1", one.getsockname()[1])
    with pytest.raises(InputError, match=r"cannot listen on no\.such\.host\.invalid port 0"):
        listen("no.such.host.invalid", 0)
