from .application import Explorer as Explorer
from .application import application as application
