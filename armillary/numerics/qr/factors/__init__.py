"""What the methods share: triangles, passes of CholeskyQR, an implicit Q, and one call for all of them."""
