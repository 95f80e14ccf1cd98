"""The socket that servers listen on."""

from __future__ import annotations

import socket

import pytest

from armillary.errors import InputError
from armillary.listening import is_own_name, listen, name_of


def test_a_socket_names_its_protocol_and_any_port_is_found() -> None:
    """asyncio leaves Nagle's algorithm on where the protocol is not named, and a small answer then waits for 40 ms."""
    with listen("127.0.0.1", 0) as one:
        assert one.proto == socket.IPPROTO_TCP
        assert one.getsockname()[0] == "127.0.0.1"
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen("127.0.0.1", one.getsockname()[1])
    with pytest.raises(InputError, match=r"cannot listen on no\.such\.host\.invalid port 0"):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Here:80", "here"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("here.local.", "here.local"),
        ("a:b", "a:b"),
        ("", ""),
        ("[::1]x:80", "[::1]x"),
    ],
)
def test_the_name_in_a_host(host: str, name: str) -> None:
    assert name_of(host) == name


@pytest.mark.parametrize("host", ["127.0.0.1:80", "[::1]:80", "localhost", "node7:8000", "x.svc", "x.internal:1", "known.org"])
def test_names_that_no_strangers_dns_can_point_here(host: str) -> None:
    assert is_own_name(host, {"known.org"})


@pytest.mark.parametrize(
    "host", ["", "evil.org", "evil.org:80", "localhost.evil.org", "127.0.0.1.evil.org", "a b", "local host", "evil.org:x"]
)
def test_names_of_strangers(host: str) -> None:
    assert not is_own_name(host, {"known.org"})
