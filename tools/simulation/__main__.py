"""``python -m tools.simulation``."""

import sys

from tools.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
