#!/usr/bin/env bash
# gpu-smoke.sh [FOLDER] [option of `vpatch smoke`]...: the cuda tier on a GPU host without network.
#
# FOLDER is a smoke bundle, whole or in pieces: manifest.json, unpack.py, and files/; or pieces.json
# with the pieces beside it, in FOLDER/pieces or in a folder `pieces` next to FOLDER. Left out, it
# is the folder of this script. Without options: --tier core --runner all.
#
#   SMOKE_SITE    where it is unpacked and kept; `smoke-site` next to FOLDER when not set. Bundles
#                 that share it unpack what they have in common once.
#   SMOKE_PIECES  one more folder with pieces.
#   PYTHON        the interpreter that has what the bundle was made for; python3 when not set.
#
# Exits with what `vpatch smoke` exits with; 2 when there is no bundle, 4 when it cannot be unpacked.
set -euo pipefail

fail() {
    printf 'gpu-smoke: %s\n' "$2" >&2
    exit "$1"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1-} in
-h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
"" | -*) folder=$here ;;
*)
    folder=$1
    shift
    ;;
esac
[ -f "$folder/manifest.json" ] && [ -f "$folder/unpack.py" ] ||
    fail 2 "$folder is no smoke bundle: make one with vpatch smoke TAG --bundle DIR --have pip-list.json"
grep -q '"group": "tool"' "$folder/manifest.json" ||
    fail 2 "$folder carries no vpatch: make the bundle again"
folder=$(cd "$folder" && pwd)
site=${SMOKE_SITE:-$(dirname "$folder")/smoke-site}
python=$(command -v "${PYTHON:-python3}") ||
    fail 4 "there is no ${PYTHON:-python3}: name the interpreter with PYTHON="
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")

[ $# -gt 0 ] || set -- --tier core --runner all
places=(--from "$folder/pieces" --from "$folder/../pieces")
[ -z "${SMOKE_PIECES-}" ] || places+=(--from "$SMOKE_PIECES")
lines=$("$python" "$folder/unpack.py" "$folder/manifest.json" "$site" "${places[@]}")
eval "$lines"
# What lies in the current folder is not to be taken for one of the packages.
export PYTHONSAFEPATH=1
exec "$python" -m vpatch smoke --installed "$python" --device cuda "$@"
