"""The records of a log: formats, fields and samples."""

#: What a person may call a format; `auto` looks at the file, `lines` is free text.
NAMES = ("auto", "zeek", "csv", "tsv", "w3c", "combined", "netflow", "key-value", "jsonl", "lines")
