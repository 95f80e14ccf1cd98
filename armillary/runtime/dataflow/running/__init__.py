"""How an application is run under a technique, and what is measured."""
