#!/usr/bin/env bash
# ci/nightly.sh [FOLDER]: `vpatch smoke` of pinned releases on a CPU: the full tier of v0.17.1 and
# v0.16.0, the core tier of v0.32.0 (MRV2, which v0.33.0 takes by itself, does not run on a CPU); and
# the proof of every series: each test patch with and without its fix; the tests that are marked
# nightly; and a minute of fuzzing each for the readers of patches and of archives
# (FOLDER/fuzz/crashes/ has what they fell over).
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
for one in v0.17.1:full v0.16.0:full v0.32.0:core; do
    tag=${one%:*}
    VPATCH_CACHE=$cache "$bin/vpatch" smoke "$tag" --device cpu --tier "${one#*:}" --keep "$out/$tag" \
        2>&1 | tee "$out/$tag.txt" || failed+=("$tag")
done
VPATCH_TEST_CACHE=$cache VPATCH_PROVE=all "$bin/pytest" -m engine tests/engine/test_series.py \
    2>&1 | tee "$out/series.txt" || failed+=(series)
VPATCH_TEST_CACHE=$cache "$bin/pytest" -n auto -m nightly 2>&1 | tee "$out/nightly.txt" || failed+=(nightly)
make_venv .venv-fuzz fuzz
.venv-fuzz/bin/python ci/fuzz.py --seconds 60 --corpus "$out/fuzz" 2>&1 | tee "$out/fuzz.txt" ||
    failed+=(fuzz)
if [ ${#failed[@]} -gt 0 ]; then
    say "FAILED: ${failed[*]}; see $out"
    exit 1
fi
say "All of it passed; see $out"
