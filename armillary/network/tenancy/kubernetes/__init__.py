"""Kubernetes objects that the VNI service reads, writes and audits."""
