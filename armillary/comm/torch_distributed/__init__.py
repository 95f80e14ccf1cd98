"""Ranks as processes of a torch.distributed group, with Gloo in main memory or with NCCL on GPUs."""
