"""Users' files: functions with their nodes, and traces with deadlines."""
