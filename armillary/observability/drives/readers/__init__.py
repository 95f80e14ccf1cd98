"""SMART logs as fleets: daily files of Alibaba and Backblaze, and documents of smartctl."""
