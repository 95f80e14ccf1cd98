"""The judge: calls, pods and nodes played out event by event."""
