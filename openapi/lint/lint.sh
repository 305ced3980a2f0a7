#!/bin/sh
# lint.sh: hold native.yaml to a public OpenAPI linter. The linter's version is pinned in package-lock.json.
set -eu
cd "$(dirname "$0")"

if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
	echo "lint: node and npm are not on this machine; openapi/native.yaml was not linted"
	exit 0
fi
# A stamp of the lock file, so that a new pin is installed and an old one is not used in silence.
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cp package-lock.json node_modules/.installed-lock.json
fi
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
exec node_modules/.bin/redocly lint --config redocly.yaml ../native.yaml
