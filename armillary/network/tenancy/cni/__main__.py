"""The plugin as a program: the request comes in the environment and on standard input, the answer goes to standard output."""

import sys

from .plugin import main

sys.exit(main())
