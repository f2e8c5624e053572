"""Names for the buffers of the compiled modules, used in their annotations only.

Compiled, these are pointers and typed memory views (see the ``.pxd`` files); uncompiled, Python objects.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

Readable: TypeAlias = bytes | bytearray | memoryview
Writable: TypeAlias = bytearray | memoryview
Integers: TypeAlias = "array[int]"
