"""Fused kernels for one GPU whose memory several virtual devices share."""
