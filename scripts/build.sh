#!/bin/sh
# build.sh OUT PACKAGE...: build static binaries into OUT. A cold build takes minutes, so it says how far it is.
set -eu

out=$1
shift
mkdir -p "$out"
status=$(mktemp)
trap 'rm -f "$status"' EXIT

{
	code=0
	CGO_ENABLED=0 "${GO:-go}" build -v -trimpath -ldflags "${LDFLAGS:--s -w}" -o "$out/" "$@" 2>&1 || code=$?
	echo "$code" >"$status"
} | awk '
	/^[a-z0-9.\/_~-]+$/ { if (++n % 100 == 0) { printf "  building: %d packages compiled\n", n; fflush() } next }
	{ print; fflush() }'

exit "$(cat "$status")"
