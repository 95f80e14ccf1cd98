"""Views of arrays that are made once and kept, halos that are exchanged through them, and what Python costs around both."""
