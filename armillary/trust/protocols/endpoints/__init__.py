"""Endpoints: source that can only follow the protocol, the small module that it needs, and the monitor."""
