# shellcheck shell=bash
# Sourced by CI's scripts.
#
# make_venv DIR [EXTRA] installs this checkout, editable, into a virtual environment of its own.
# need COMMAND PACKAGE WHY installs a Debian package where a command is missing and root can.
#
# The stamp is written last, so an interrupted run starts that environment afresh, and a changed
# pyproject.toml brings it up to date.

# Tests start vpatch thousands of times: it is compiled once, whatever the caller's setting.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

need() {
    local command=$1 package=$2 why=$3
    command -v "$command" >/dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "Installing $package, $why ..."
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "$package" >&2 && return
    fi
    say "$command, $why, is missing and cannot be installed from here: install it (Debian: apt install $package)."
    exit 4
}

# Where tests and CI's smoke keep downloads and environments: the same folder, so that they are made once.
test_cache() {
    if [ -n "${VPATCH_TEST_CACHE:-}" ]; then
        printf '%s' "$VPATCH_TEST_CACHE"
    else
        "$1/python" -c 'import platformdirs as p; print(p.user_cache_path("vpatch", appauthor=False) / "tests")'
    fi
}

find_python() {
    local python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null 2>&1; then
        say "No '$python' on PATH: vpatch needs Python 3.10 or newer. Install it, or set PYTHON to one."
        exit 4
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        say "$("$python" --version) is too old: vpatch needs Python 3.10 or newer. Set PYTHON to one."
        exit 4
    fi
    printf '%s' "$python"
}

make_venv() {
    local dir=$1 extra=${2:-} python wanted
    python=$(find_python)
    wanted="$("$python" --version) $(cksum <pyproject.toml) ${extra}"
    if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "Making the virtual environment $dir with $("$python" --version) ..."
    rm -rf "$dir"
    if ! "$python" -m venv "$dir"; then
        say "'$python -m venv' failed: install the venv module (Debian: python3-venv) and run it again."
        exit 4
    fi
    if ! "$dir/bin/python" -m pip install --quiet --disable-pip-version-check \
        --editable ".${extra:+[$extra]}"; then
        say "pip could not install vpatch's dependencies: see its error above; run it again when it is mended."
        exit 4
    fi
    printf '%s' "$wanted" >"$dir/stamp"
}
