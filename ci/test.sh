#!/usr/bin/env bash
# ci/test.sh [STEP...]: everything that CI checks, in an environment of its own (.venv-ci).
#
# Steps: lint types unit real series engine. Without arguments all of them run, also after one has
# failed; the exit code is 1 if any did. Can be interrupted and run again: downloads are kept in
# the user's cache (VPATCH_TEST_CACHE overrides).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 4
. ci/venv.sh

have_quilt() {
    command -v quilt >/dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "Installing quilt, which the tests compare vpatch with ..."
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends quilt >&2 && return
    fi
    say "quilt is missing and cannot be installed from here: install it (Debian: apt install quilt)."
    exit 4
}

step_lint() {
    "$bin/ruff" check && "$bin/ruff" format --check &&
        "$bin/shellcheck" build.sh ci/*.sh tools/vpatch/smoke/*.sh .ci/run && "$bin/vpatch" lint
}

step_types() {
    "$bin/mypy" && "$bin/mypy" tests ci
}

step_unit() {
    "$bin/pytest" -m "not network and not slow and not engine"
}

# Real releases from the package index, real wheels, real installs.
step_real() {
    "$bin/pytest" -m "(network or slow) and not engine"
}

# Every test patch passes with the fix before it, and fails without.
step_series() {
    "$bin/pytest" -m "engine" tests/engine/test_series.py
}

# vLLM's own engine on a CPU.
step_engine() {
    "$bin/pytest" -m "engine" --ignore=tests/engine/test_series.py tests/engine
}

have_quilt
make_venv .venv-ci dev
bin=.venv-ci/bin

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(lint types unit real series engine)
failed=()
for step in "${steps[@]}"; do
    if ! declare -F "step_$step" >/dev/null; then
        say "There is no step '$step': lint types unit real series engine."
        exit 2
    fi
    say "== $step"
    started=$SECONDS
    "step_$step" || failed+=("$step")
    say "== $step: $((SECONDS - started)) s"
done
if [ ${#failed[@]} -gt 0 ]; then
    say "FAILED: ${failed[*]}"
    exit 1
fi
say "All of it passed: ${steps[*]}"
