#!/bin/sh
# release.sh: everything a release consists of, in dist/.
#
# AGBX_RELEASE_SIGNING_KEY  PEM file of the ECDSA P-256 key that signs SHA256SUMS; without it the release is unsigned
#                           and says so, and install.sh refuses it
# AGBX_RELEASE_BASE         the address that the release's install.sh and abx upgrade download from
set -eu
exec "${GO:-go}" run ./internal/release -version "${VERSION:?}" -out dist \
	-key "${AGBX_RELEASE_SIGNING_KEY:-}" -base "${AGBX_RELEASE_BASE:-}"
