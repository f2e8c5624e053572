"""The remoting protocol without I/O: frames, headers in both formats, codes, typed headers and bodies."""
