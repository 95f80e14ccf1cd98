"""The reality check: jobs as processes of this machine."""
