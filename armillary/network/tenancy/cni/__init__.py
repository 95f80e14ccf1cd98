"""The CNI plugin that gives a pod's network namespace its VNI: python -m armillary.network.tenancy.cni"""
