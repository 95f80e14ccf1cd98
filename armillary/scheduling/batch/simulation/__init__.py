"""The machine that batch jobs are played on: nodes, a queue, and a file system that active I/O phases share."""
