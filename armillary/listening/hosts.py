"""Which names in a request's `Host` no stranger's DNS can point at this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Domains that are never delegated (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal), and Kubernetes' names of services.
RESERVED = (".localhost", ".local", ".internal", ".home.arpa", ".svc")


def name_of(host: str) -> str:
    """The name in `name:port` or `[address]:port`, in small letters; what is not written so is returned whole."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](:\d{1,5})?", host)
    name, colon, port = host.rpartition(":")
    return (bracketed[1] if bracketed else name if colon and port.isdecimal() else host).lower().removesuffix(".")


def is_own_name(host: str, further: Collection[str] = ()) -> bool:
    """Whether a `Host` is an address, a name without a dot, a name under a reserved domain, or one of `further`."""
    name = name_of(host)
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        written = re.fullmatch(r"[a-z0-9._-]+", name) is not None
        return written and ("." not in name or name in further or name.endswith(RESERVED))
