#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need and this machine lacks: deps.sh [core|all]
#   core: to build, `make demo` and `make check`; all: to run `make check-all` as well.
# Says what is missing, asks nothing, and does nothing when all is there.  Debian and its kin, through apt-get.
set -eu

set_name=${1:-core}
missing=

tool() { # a program, and the package that has it
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

lib() { # as pkg-config calls it (which may itself be missing), and its package
    pkg-config --exists "$1" 2>/dev/null || installed "$2" || missing="$missing $2"
}

file() { # a file, and its package
    [ -e "$1" ] || missing="$missing $2"
}

clang_major() {
    v=$(clang -dumpversion 2>/dev/null || apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
    v=${v%%.*}
    echo "${v:-14}"
}

core() {
    tool gcc gcc
    tool make make
    tool pkg-config pkg-config
    tool python3 python3
    tool openssl openssl
    tool nghttp nghttp2-client
    file /usr/include/stdlib.h libc6-dev
    lib libuv libuv1-dev
    file /usr/share/llhttp/llhttp.c node-llhttp
    lib libcares libc-ares-dev
    lib jansson libjansson-dev
    lib yaml-0.1 libyaml-dev
    lib libxxhash libxxhash-dev
    lib zlib zlib1g-dev
    lib libzmq libzmq3-dev
    lib openssl libssl-dev
    lib libnghttp2 libnghttp2-dev
    lib cunit libcunit1-dev
}

extra() {
    tool clang clang
    if ! echo 'int main(void) { return 0; }' | clang -fsanitize=address,fuzzer-no-link -x c - -o /dev/null 2>/dev/null; then
        missing="$missing libclang-rt-$(clang_major)-dev"
    fi
    tool clang-format clang-format
    tool cppcheck cppcheck
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
    tool curl curl
    tool node nodejs
    tool npm npm
}

find_missing() {
    missing=
    core
    [ "$set_name" = core ] || extra
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

case $set_name in
core | all) ;;
*)
    echo "usage: deps.sh [core|all]" >&2
    exit 2
    ;;
esac

find_missing
if [ -z "$missing" ]; then
    echo "deps: everything is there ($set_name)"
    exit 0
fi
echo "deps: missing:$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: there is no apt-get here: install these (their names are Debian's) with your own packager" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
    echo "deps: not root, and sudo would ask for a password.  Run:  sudo apt-get install$missing" >&2
    exit 1
fi
if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    as_root apt-get update -q
    find_missing # the number in libclang-rt-N-dev may be known only now
fi
# Lists may be there and too old to fetch by: then once more with new ones.
# shellcheck disable=SC2086  # one word a package
as_root apt-get install -q -y --no-install-recommends $missing ||
    { as_root apt-get update -q && as_root apt-get install -q -y --no-install-recommends $missing; }
wanted=$missing
find_missing
if [ -n "$missing" ]; then
    echo "deps: still missing after installation:$missing" >&2
    exit 1
fi
echo "deps: installed:$wanted"
