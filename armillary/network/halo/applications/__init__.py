"""Small stencil codes whose result on many ranks is that of one rank, bit for bit."""
