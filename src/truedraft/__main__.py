"""`python -m truedraft`, which is how `torchrun -m truedraft` starts it too."""

import sys

from truedraft.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
