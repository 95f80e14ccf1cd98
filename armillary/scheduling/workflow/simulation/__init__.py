"""The judge: a workflow on a cluster, event by event and without barriers."""
