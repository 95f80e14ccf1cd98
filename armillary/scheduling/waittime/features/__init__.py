"""What is known when a job is submitted: the state of the machine and its queue, the job itself, and the past of its user."""
