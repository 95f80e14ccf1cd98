"""What a run tells about itself: I/O logs, traces of devices, health of drives."""
