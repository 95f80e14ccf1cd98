"""Lines as records: formats, fields, samples."""
