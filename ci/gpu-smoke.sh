#!/usr/bin/env bash
# ci/gpu-smoke.sh FOLDER [option of `vpatch smoke`]...: runs the cuda tier on a GPU host without
# network from a bundle; docs/gpu-host.md tells how to make one. The bundle has the same script in
# it: a checkout is not needed there.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../tools/vpatch/smoke/gpu-smoke.sh" "$@"
