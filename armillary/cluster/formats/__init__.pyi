from .reading import read as read
