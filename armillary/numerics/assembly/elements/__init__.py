"""Elements: quadrature and element matrices."""
