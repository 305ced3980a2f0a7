#!/bin/sh
# bench.sh: the published figures. Quote medians and the ratios to the baselines of the same run: machines differ.
set -eu
go=${GO:-go}
echo "== command line: start-up beside an empty cobra program"
"$go" test ./cli/... -run '^$' -bench Start -benchtime 20x
echo "== platform: claims, bursts, recycling, memory, start-up"
"$go" test ./test/e2e -run '^$' -bench 'Create' -benchtime 200x
"$go" test ./test/e2e -run '^$' -bench 'Burst|Idle|Start' -benchtime 5x -timeout 20m
"$go" test ./test/e2e -run '^$' -bench 'Sustained' -benchtime 1x -timeout 20m
