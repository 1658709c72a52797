#!/usr/bin/env bash
# ./build.sh v0.17.1 [options of `vpatch build`]  ->  dist/vllm-0.17.1+kimi.N-...whl
#
# Makes its own virtual environment (.venv-build), fetches the release's sources and wheel from the
# package index that pip is configured for, applies the series, and splices the patched files into
# upstream's wheel. Can be interrupted and run again: what is complete is kept.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=ci/venv.sh
. "$here/ci/venv.sh"

usage() {
    say "Usage: ./build.sh TAG [options of 'vpatch build']   (all of them: docs/cli.md)"
    say "Tags with a series: $(cd "$here/patches" && echo v*/ | tr -d /)"
    say "PYTHON names the Python to use, VPATCH_CACHE the folder for downloads."
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
"" | -*)
    usage
    exit 2
    ;;
esac
tag=$1
shift
trap 'say "interrupted; run it again, what is complete is kept"; exit 130' INT

# Everything else happens in the caller's folder, so that relative paths are the caller's.
(cd "$here" && make_venv .venv-build)
vpatch=$here/.venv-build/bin/vpatch
out=$here/dist
if [ "$PWD" = "$here" ]; then out=dist; fi

say "== Apply the series of $tag"
"$vpatch" apply "$tag" --repo "$here" >&2
say "== Build the wheel"
"$vpatch" build "$tag" --repo "$here" --out "$out" "$@"
