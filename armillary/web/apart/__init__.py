"""What is done in processes of their own: importing techniques, reading users' files, drawing reports and running studies.

So the server stays small, and nothing that a technique or a file does can end it.
"""
