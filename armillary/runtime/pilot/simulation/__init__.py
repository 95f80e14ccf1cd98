"""What a pilot would do on machines of any size: stations in series, node by node and core by core."""
