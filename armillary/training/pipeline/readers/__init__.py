"""Readers of the files that users bring: profiles of layers, lengths of sequences, schedules."""
