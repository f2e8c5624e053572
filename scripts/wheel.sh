#!/bin/sh
# Build a wheel of this source into dist/. Usage: wheel.sh PYTHON, one with setuptools, wheel and Cython.
# It has a build folder of its own: modules that development compiled and then moved are not packed.
set -eu
cd "$(dirname "$0")/.."
rm -rf build/wheel
exec "$1" -W ignore setup.py -q build --build-base build/wheel bdist_wheel --dist-dir dist
