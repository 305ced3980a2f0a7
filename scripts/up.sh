#!/bin/sh
# up.sh: start the platform in the foreground and, once it is ready, save the context `local` and say what to try.
set -eu

data=${AGENTBOX_DATA_DIR:-${XDG_DATA_HOME:-$HOME/.local/share}/agentbox}
ready=$(mktemp -d)
mkfifo "$ready/out"
trap 'rm -rf "$ready"' EXIT

AGENTBOX_DATA_DIR="$data" bin/controller "$@" >"$ready/out" &
controller=$!
# Ctrl-C reaches the controller by itself (same process group); TERM has to be handed on.
trap 'kill -TERM "$controller" 2>/dev/null || true' TERM HUP
trap ':' INT

announce() {
	# shellcheck disable=SC1091
	. "$data/client.env"
	printf '%s' "$AGENTBOX_API_KEY" |
		bin/abx context set local --endpoint "$AGENTBOX_ENDPOINT" --api-key-stdin >/dev/null
	# The environment comes first, its Pods a moment later.
	tries=0
	until [ "$(bin/abx envs default --context local --jq '.status.idleReplicas // 0' 2>/dev/null || echo 0)" -gt 0 ] || [ "$tries" -ge 60 ]; do
		tries=$((tries + 1))
		sleep 0.5
	done
	cat <<TRY

Saved the context \`local\`. Try, in another terminal:

  $(pwd)/bin/abx envs --context local
  $(pwd)/bin/abx envs default docs --context local
  . $data/client.env && $(pwd)/bin/abx envs default pools
TRY
}

{
	announced=
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		ready\ *) [ -n "$announced" ] || { announced=1; announce; } ;;
		esac
	done <"$ready/out"
} || true

while :; do
	code=0
	wait "$controller" || code=$?
	# wait returns early when a trapped signal arrives; go on until the controller is gone.
	kill -0 "$controller" 2>/dev/null || break
done
exit "$code"
