#!/usr/bin/env bash
# ci/nightly.sh [FOLDER]: the full tier of `vpatch smoke` on every pinned release, on a CPU.
#
# FOLDER (default: nightly/ and the time) gets for each release what was printed (TAG.txt), and the
# jobs, logs and checkpoints of its engine starts (TAG/). All releases run, also after one has
# failed; the exit code is 1 if any did. Downloads and environments are those of ci/test.sh.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 4
. ci/venv.sh

need g++ g++ "with which torch compiles on a CPU"
make_venv .venv-ci dev
bin=.venv-ci/bin
cache=$(test_cache "$bin")
out=${1:-nightly/$(date -u +%Y%m%dT%H%M%SZ)}
mkdir -p "$out" || exit 4

failed=()
for tag in v0.17.1 v0.16.0; do
    VPATCH_CACHE=$cache "$bin/vpatch" smoke "$tag" --device cpu --tier full --keep "$out/$tag" \
        2>&1 | tee "$out/$tag.txt" || failed+=("$tag")
done
if [ ${#failed[@]} -gt 0 ]; then
    say "FAILED: ${failed[*]}; see $out"
    exit 1
fi
say "The full tier passed; see $out"
