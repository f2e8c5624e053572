#!/bin/sh
# Prints a Python that can make the virtual environment: 3.11 or newer, with venv and pip.
# One that has its C headers is preferred, because only that one can compile the hot modules.
probe='import sys, venv, ensurepip
sys.exit(0 if sys.version_info >= (3, 11) else 1)'
headers='import os, sys, sysconfig
sys.exit(0 if os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")) else 1)'

fallback=
for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    path=$(command -v "$name" 2>/dev/null) || continue
    "$path" -c "$probe" >/dev/null 2>&1 || continue
    if "$path" -c "$headers" >/dev/null 2>&1; then
        echo "$path"
        exit 0
    fi
    [ -n "$fallback" ] || fallback=$path
done
if [ -n "$fallback" ]; then
    echo "$fallback"
    exit 0
fi
echo "OrbitMQ needs Python 3.11 or newer with its venv module; none was found on PATH." >&2
echo "On Debian or Ubuntu: apt-get install python3 python3-venv python3-dev" >&2
exit 1
