"""The stages of which pipelines are made, one file per kind of stage."""
