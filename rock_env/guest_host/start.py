"""Start the guest from the folder this file lies in: `python -I -S start.pyc --listen-fd N`.

Run by backends in a box (see `guest_host/code`), where neither `rock_env` nor anything else is installed.
"""

import sys

sys.path.insert(0, __file__.rpartition("/")[0])

from guest.init import main  # type: ignore[import-not-found]

main(sys.argv[1:])
