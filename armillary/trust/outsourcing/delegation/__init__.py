"""The client that checks, the server that computes, and what the client keeps secret."""
