"""What waking another thread costs on this machine."""
