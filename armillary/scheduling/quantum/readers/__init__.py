"""OpenQASM, batches of jobs and links from files."""
