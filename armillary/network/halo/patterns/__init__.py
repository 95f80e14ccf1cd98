"""Who sends how many bytes to whom in each iteration: stencils, adaptive meshes, random ones."""
