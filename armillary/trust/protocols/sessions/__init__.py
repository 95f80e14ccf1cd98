"""Sessions that really run: in virtual time with random delays, over queues, over TCP, over `armillary.comm`."""
