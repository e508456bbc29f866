#!/bin/sh
# Make .venv for this state of the lock files: `tools/setup.sh runtime` or `tools/setup.sh dev`.
#
# A stamp in .venv holds the digest of what it was made from. While it fits, this script does nothing; when a lock,
# pyproject.toml or the place of the clone has changed, .venv is made anew, so that nothing of the old one stays behind.
# Everything is installed by hash from the lock, the build backend included; only then is the package itself linked in.
# Wheels only: building from source would fetch a build backend that no lock has seen.
set -eu
cd "$(dirname "$0")/.."

profile=$1
case $profile in
    runtime) lock=requirements.lock ;;
    dev) lock=requirements-dev.lock ;;
    *) echo "usage: tools/setup.sh runtime|dev" >&2; exit 2 ;;
esac

fail() {
    echo "setup: $*" >&2
    exit 1
}

sha256() {
    sha256sum 2>/dev/null || shasum -a 256
}

# Say which interpreter a command runs; refuse one that is missing or too old.
identify() {
    "$1" -c 'import sys; sys.exit(1) if sys.version_info < (3, 11) else print(sys.base_prefix, *sys.version_info[:3])' 2>/dev/null
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11
    fi
    for candidate; do
        if identify "$candidate" >/dev/null && can_make_venv "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# A fresh Debian has no python3-venv, or no Python at all. A PYTHON= that is missing or too old is no case for apt.
install_venv_package() {
    [ -z "${PYTHON:-}" ] || identify "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON is not Python 3.11 or newer"
    command -v apt-get >/dev/null || fail "needs Python 3.11 or newer with venv and ensurepip (PYTHON=/path/to/python)"
    [ "$(id -u)" = 0 ] || fail "needs Python 3.11 or newer with venv: run 'sudo apt-get install python3-venv' first"
    echo "setup: installing python3-venv"
    DEBIAN_FRONTEND=noninteractive apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends python3-venv >/dev/null
}

is_made() {
    [ -x .venv/bin/python ] || return 1
    current=$(identify .venv/bin/python) || return 1
    # A choice by PYTHON= holds until another one is made, so plain `make test` does not undo it.
    [ -z "${PYTHON:-}" ] || [ "$(identify "$PYTHON")" = "$current" ] || return 1
    for stamp; do
        [ "$(cat ".venv/.made-$stamp" 2>/dev/null)" != "$digest" ] || return 0
    done
    return 1
}

# Two at once in one clone would empty .venv under each other. The lock ends with this process; without flock there is none.
if command -v flock >/dev/null; then
    exec 9>.setup.lock
    flock 9
fi

# The tests of the dashboard drive a real browser. Without root they are reported as not run; in CI they then fail.
install_browser() {
    ! command -v chromium >/dev/null || return 0
    ! command -v chromium-browser >/dev/null || return 0
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "setup: no Chromium, so the tests in a browser will not run: sudo apt-get install chromium fonts-dejavu-core" >&2
        return 0
    fi
    echo "setup: installing chromium for the tests in a browser"
    DEBIAN_FRONTEND=noninteractive apt-get update -qq || return 0
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core >/dev/null ||
        echo "setup: Chromium could not be installed; the tests in a browser will not run" >&2
}

digest=$({ cat requirements.lock requirements-dev.lock pyproject.toml tools/setup.sh; pwd; } | sha256)

# The dev lock holds the runtime lock whole.
case $profile in
    runtime) ! is_made runtime dev || exit 0 ;;
    dev) ! is_made dev || exit 0 ;;
esac

if ! is_made runtime dev; then
    python=$(find_python) || {
        install_venv_package
        python=$(find_python) || fail "needs Python 3.11 or newer with venv and ensurepip; ${PYTHON:-python3} has not got them"
    }
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input --quiet "$@"
}

echo "setup: installing $lock"
pip install --require-hashes --only-binary=:all: -r "$lock"
pip install --no-deps --no-build-isolation --editable .
[ "$profile" != dev ] || install_browser
echo "$digest" >".venv/.made-$profile"
