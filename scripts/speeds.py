"""Says which hot modules run compiled. Exit code 1 when one of them does not.

``python scripts/speeds.py`` prints one line; ``ORBITMQ_PURE=1`` shows the uncompiled view.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def main() -> int:
    sys.path.insert(0, str(SOURCE))
    from orbitmq import _speed

    names = [
        ".".join(pxd.relative_to(SOURCE).with_suffix("").parts)
        for pxd in sorted(SOURCE.rglob("*.pxd"))
        if pxd.with_suffix(".py").exists()
    ]
    plain = [name for name in names if not _speed.is_compiled(importlib.import_module(name))]
    line = f"compiled: {len(names) - len(plain)} of {len(names)} hot modules"
    print(f"{line}; uncompiled, slower: {', '.join(plain)}" if plain else line)
    return 1 if plain else 0


if __name__ == "__main__":
    sys.exit(main())
