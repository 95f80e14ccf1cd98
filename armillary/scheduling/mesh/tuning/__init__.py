"""Which X suits a mesh and a machine."""
