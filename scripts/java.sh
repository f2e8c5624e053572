#!/bin/sh
# Makes sure that Spark finds a Java runtime of version 17 or newer; prints its home folder.
# Installs Debian's package when that is missing and this user may; else says in one line what to install.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH
minimum=17

version_of() {
    # `17.0.15`, `21`, and the `1.8.0` of old times, whose major number then reads 1.
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

find_java() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java 2>/dev/null)" /usr/lib/jvm/*/bin/java; do
        [ -n "$java" ] && [ -x "$java" ] || continue
        version=$(version_of "$java")
        if [ -n "$version" ] && [ "$version" -ge "$minimum" ]; then
            dirname "$(dirname "$(readlink -f "$java")")"
            return 0
        fi
    done
    return 1
}

find_java && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root=no
    fi
fi
if [ "$as_root" != no ] && command -v apt-get >/dev/null 2>&1; then
    echo "Spark needs Java $minimum or newer: installing Debian's package" >&2
    for attempt in installed-lists fresh-lists; do
        if [ "$attempt" = fresh-lists ]; then
            $as_root apt-get -qq update >/dev/null 2>&1
        fi
        for package in openjdk-17-jre-headless default-jre-headless; do
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
                "$package" >/dev/null 2>&1
            find_java && exit 0
        done
    done
fi
echo "Spark needs a Java runtime, version $minimum or newer, and this user cannot install one:" \
    "install openjdk-17-jre-headless (Debian, Ubuntu) or another JRE and set JAVA_HOME." >&2
exit 1
