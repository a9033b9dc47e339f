"""Entry of `python -m rock_env.server`."""

import sys

from rock_env.server.app import main

if __name__ == "__main__":
    sys.exit(main())
