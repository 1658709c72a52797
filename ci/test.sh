#!/usr/bin/env bash
# ci/test.sh [STEP...]: everything that CI checks, in an environment of its own (.venv-ci).
#
# Steps, cheap ones first: lint types unit real series smoke engine. Without arguments all of them
# run, also after one has failed; the exit code is 1 if any did. Can be interrupted and run again:
# downloads and environments are kept in the user's cache (VPATCH_TEST_CACHE overrides).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 4
. ci/venv.sh

# A test file's fixtures are made once a worker: neighbours stay together where they can.
parallel=(-n auto --dist worksteal)

step_lint() {
    "$bin/ruff" check && "$bin/ruff" format --check &&
        "$bin/shellcheck" build.sh ci/*.sh tools/vpatch/smoke/*.sh .ci/run && "$bin/vpatch" lint
}

step_types() {
    "$bin/mypy" && "$bin/mypy" tests ci
}

step_unit() {
    "$bin/pytest" "${parallel[@]}" -m "not network and not slow and not engine and not nightly"
}

# Real releases from the package index, real wheels, real installs.
step_real() {
    "$bin/pytest" "${parallel[@]}" --durations=15 -m "(network or slow) and not engine and not nightly"
}

# Every test patch passes with the fix before it, and fails without.
step_series() {
    "$bin/pytest" -m "engine" tests/engine/test_series.py
}

# The patched release drafts on a CPU; as it is, it fails as it is known to.
step_smoke() {
    local tag=v0.17.1 failed=0 said # v0.16.0 and v0.32.0 have their turn in the nightly
    said=$(mktemp) || return 1
    VPATCH_CACHE=$cache "$bin/vpatch" smoke "$tag" --device cpu | tee "$said" || failed=1
    VPATCH_CACHE=$cache "$bin/vpatch" smoke "$tag" --device cpu --expect-unpatched || failed=1
    "$bin/python" ci/docs.py --check-smoke "$said" || failed=1
    rm "$said"
    return "$failed"
}

# What the smoke stands on, and that it can fail: references, checkpoints, broken engines.
step_engine() {
    # A file has its own models: it stays with one worker.
    "$bin/pytest" -n auto --dist loadfile --durations=5 -m "engine" --ignore=tests/engine/test_series.py tests/engine
}

all=(lint types unit real series smoke engine)
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=("${all[@]}")
for step in "${steps[@]}"; do
    case $step in
        unit | real)
            need quilt quilt "which the tests compare vpatch with"
            need dpkg-source dpkg-dev "with which the tests make and read Debian's source packages"
            ;;
        engine) need g++ g++ "with which torch compiles on a CPU" ;;
    esac
    if [ "$step" = real ] && ! command -v google-chrome >/dev/null 2>&1; then
        need chromium chromium "in which the tests look at the page of vpatch status"
    fi
    if ! declare -F "step_$step" >/dev/null; then
        say "There is no step '$step': ${all[*]}."
        exit 2
    fi
done

make_venv .venv-ci dev
bin=.venv-ci/bin
cache=$(test_cache "$bin")
export VPATCH_TEST_CACHE="$cache"

failed=()
for step in "${steps[@]}"; do
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
