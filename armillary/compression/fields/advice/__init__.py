"""How good a compressed field is, and which pipeline suits one."""
