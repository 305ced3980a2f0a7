#!/bin/sh
# context.sh hands the plugin's endpoint and key to abx, as the context `agentbox`, when they have changed.
#
# Claude Code gives hooks the plugin's settings as CLAUDE_PLUGIN_OPTION_*, and puts what a SessionStart hook prints into
# the conversation: so nothing here prints the key, and it reaches abx by standard input. Other contexts, the choice of
# the current one, and a context `agentbox` that the person made are left alone. It always succeeds: a session must
# start without a platform too.

context=agentbox

hash_of() {
	if command -v sha256sum >/dev/null 2>&1; then
		sha256sum
	elif command -v shasum >/dev/null 2>&1; then
		shasum -a 256
	else
		openssl dgst -sha256
	fi 2>/dev/null | tr -cd '0-9a-f'
}

# settings of this session that would win over the context; abx is asked without them.
own_context=${AGENTBOX_CONTEXT:-}${AGENTBOX_ENDPOINT:-}${AGENTBOX_CLUSTER_API:-}
unset AGENTBOX_CONTEXT AGENTBOX_ENDPOINT AGENTBOX_CLUSTER_API AGENTBOX_API_KEY

# address_of_context prints where the saved context leads; nothing when there is none.
address_of_context() {
	"$abx" context show "$context" --jq .address.value 2>/dev/null
}

save() {
	state_dir=${CLAUDE_PLUGIN_DATA:-${XDG_STATE_HOME:-$HOME/.local/state}/abx}
	state=$state_dir/claude-code-plugin
	# Only a hash is kept: it tells whether the settings changed, and nothing else.
	wanted=$(printf '%s\n%s' "$endpoint" "$key" | hash_of)
	saved=
	[ ! -f "$state" ] || saved=$(cat "$state")
	[ -z "$wanted" ] || [ "$wanted" != "$saved" ] || return 0
	if [ -z "$saved" ]; then
		there=$(address_of_context)
		if [ -n "$there" ] && [ "$there" != "${endpoint%/}" ]; then
			echo "AgentBox: the context $context exists already and leads to $there, so the plugin left it alone. Rename it (abx context rename $context NAME) and start a new session."
			return 1
		fi
	fi
	if ! answer=$(printf '%s' "$key" | "$abx" context set "$context" --endpoint "$endpoint" --api-key-stdin 2>&1); then
		echo "AgentBox: the plugin's settings could not be saved with abx:"
		echo "$answer"
		return 1
	fi
	mkdir -p "$state_dir" && printf '%s\n' "$wanted" >"$state.$$" && mv -f "$state.$$" "$state"
}

main() {
	umask 077
	endpoint=${CLAUDE_PLUGIN_OPTION_ENDPOINT:-}
	key=${CLAUDE_PLUGIN_OPTION_API_KEY:-}
	[ -n "$endpoint$key" ] || return 0
	if [ -z "$endpoint" ] || [ -z "$key" ]; then
		echo "AgentBox: the plugin needs both its settings, the address and the API key (/plugin, agentbox, configure)."
		return 0
	fi
	abx=$(command -v abx) || abx=$HOME/.local/bin/abx
	if [ ! -x "$abx" ]; then
		echo "AgentBox: abx is not installed. A release's install.sh puts it into ~/.local/bin; see docs/installation.md of AgentBox."
		return 0
	fi
	save || return 0
	# For this session's shell commands only; the person's current context stays what it is.
	if [ -z "$own_context" ]; then
		if [ -n "${CLAUDE_ENV_FILE:-}" ]; then
			echo "export AGENTBOX_CONTEXT=$context" >>"$CLAUDE_ENV_FILE"
		else
			echo "AgentBox: use abx with --context $context."
		fi
	fi
}

main
exit 0
