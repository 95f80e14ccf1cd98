"""The HTML report: one self-contained file that opens from a mail attachment."""
