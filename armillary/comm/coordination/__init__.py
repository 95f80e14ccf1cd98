"""The coordinator of Uniconn, and the transfers that it makes on each backend."""
