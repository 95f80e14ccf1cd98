"""Whether it is right: checks on the files, settings read back from them, a smoke test and a load on a running service."""
