"""A run as files for Paraver and for Perfetto."""
