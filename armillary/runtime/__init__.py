"""What starts, orders and guards work on machines: pilots, data flow, energy, locks, election."""
