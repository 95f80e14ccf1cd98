"""The server over TCP, and the socket by which a client asks it."""
