"""Total FETI: meshes, physics, decomposition into subdomains, and the solver."""
