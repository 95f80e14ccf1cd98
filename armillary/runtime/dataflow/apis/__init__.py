"""Adapters: how a kernel of each API is enqueued, and how one asks whether it is done."""
