#!/bin/sh
# lint.sh: everything that can be judged without running the product.
set -eu
go=${GO:-go}

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "gofmt would change (run gofmt -w on them):"
	echo "$unformatted"
	exit 1
fi

"$go" vet ./...
"$go" run "${LINTER:?}" run ./...
sh openapi/lint/lint.sh

if command -v shellcheck >/dev/null 2>&1; then
	git ls-files '*.sh' | xargs shellcheck
else
	echo "lint: shellcheck is not on this machine; the shell scripts were not checked"
fi
echo "lint: ok"
