"""The files: graphs, oscillators and recorded exchanges."""
