"""What a scheduler may know about a job's I/O before the job runs."""
