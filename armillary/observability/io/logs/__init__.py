"""How a job's I/O log is kept in memory, read and written."""
