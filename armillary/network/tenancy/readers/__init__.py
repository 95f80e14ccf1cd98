"""Job traces and services of network cards, read from files of strangers."""
