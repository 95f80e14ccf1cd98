"""The VNI service: who has which VNI, in a database, behind two webhooks."""
