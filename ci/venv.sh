# shellcheck shell=bash
# Sourced: make_venv DIR [EXTRA] installs this checkout, editable, into a virtual environment of its own.
#
# The stamp is written last, so an interrupted run starts that environment afresh, and a changed
# pyproject.toml brings it up to date.

say() { printf '%s\n' "$*" >&2; }

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
