#!/usr/bin/env bash
# ./build.sh v0.17.1 [options of `vpatch build`]  ->  dist/vllm-0.17.1+kimi.N-...whl
#
# Makes its own virtual environment (.venv), fetches the release's sources and wheel from the
# package index that pip is configured for, applies the series, and splices the patched files into
# upstream's wheel. Can be interrupted and run again: what is complete is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ci/venv.sh

if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
    say "Usage: ./build.sh TAG [options of 'vpatch build'], for example: ./build.sh v0.17.1"
    say "Tags with a series: $(cd patches && echo v*/ | tr -d /)"
    exit 2
fi
tag=$1
shift

make_venv .venv
vpatch=.venv/bin/vpatch

say "== Fetch $tag"
"$vpatch" fetch "$tag"
say "== Apply the series"
"$vpatch" apply "$tag"
say "== Build the wheel"
"$vpatch" build "$tag" --out dist "$@"
