"""Exchanges on virtual ranks under a choice of protocols."""
