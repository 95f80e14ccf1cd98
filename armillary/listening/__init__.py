"""What every HTTP server here is made of: sockets, bounded connections and bodies, names by which a server may be called, and a thread."""

from armillary.listening.connections import bounded_connection, listen
from armillary.listening.hosts import LOOPBACK, is_own_name, name_of
from armillary.listening.requests import Receive, Refused, Scope, Send, headers_of, json_type_only, read_body
from armillary.listening.threaded import ThreadedServer, serve_until_interrupted

__all__ = [
    "LOOPBACK",
    "Receive",
    "Refused",
    "Scope",
    "Send",
    "ThreadedServer",
    "bounded_connection",
    "headers_of",
    "is_own_name",
    "json_type_only",
    "listen",
    "name_of",
    "read_body",
    "serve_until_interrupted",
]
