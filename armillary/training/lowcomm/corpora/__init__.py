"""The text that models are trained on: built-in corpora, vocabularies, and how documents are divided among workers."""
