#!/bin/sh
# context.sh hands the plugin's endpoint and key to abx, as the context `agentbox`, when they have changed.
#
# Claude Code gives hooks the plugin's settings as CLAUDE_PLUGIN_OPTION_*, and puts what a SessionStart hook prints into
# the conversation: so nothing here prints the key, and it reaches abx by standard input. Other contexts, the choice of
# the current one, and a context `agentbox` that it did not save itself are left alone. It always succeeds: a session
# must start without a platform too.

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

# look sets there to what the saved context is, its address and the id of its saved key, or to nothing when there is none.
look() {
	there=$("$abx" context list --jq ".items[] | select(.name == \"$context\") | \"\(.address) \(.credentialId // \"-\")\"" 2>&1) || {
		echo "AgentBox: the contexts of abx could not be read:"
		echo "$there"
		return 1
	}
}

save() {
	state_dir=${CLAUDE_PLUGIN_DATA:-${XDG_STATE_HOME:-$HOME/.local/state}/abx}
	state=$state_dir/claude-code-plugin
	# Of the settings only a hash is kept: it tells whether they changed, and nothing else.
	wanted=$(printf '%s\n%s' "$endpoint" "$key" | hash_of)
	saved=
	ours=
	{ [ ! -f "$state" ] || { read -r saved && read -r ours; } <"$state"; } 2>/dev/null
	look || return 1
	# The same name is not enough: the person may have removed the plugin's context and made another one.
	if [ -n "$there" ] && [ "$there" != "$ours" ]; then
		echo "AgentBox: the context $context, which leads to ${there% *}, is not the one that the plugin saved, so the plugin left it alone. Rename it (abx context rename $context NAME) or remove it (abx context remove $context), and start a new session."
		return 1
	fi
	if [ -n "$there" ] && [ -n "$wanted" ] && [ "$wanted" = "$saved" ]; then return 0; fi
	# First, because a context that the plugin cannot remember would be a stranger's in the next session.
	if ! mkdir -p "$state_dir" 2>/dev/null || ! (: >"$state.$$") 2>/dev/null; then
		echo "AgentBox: the plugin cannot write to $state_dir, so its settings were not saved with abx. Make that folder writable and start a new session."
		return 1
	fi
	if ! answer=$(printf '%s' "$key" | "$abx" context set "$context" --endpoint "$endpoint" --api-key-stdin 2>&1); then
		rm -f "$state.$$"
		echo "AgentBox: the plugin's settings could not be saved with abx:"
		echo "$answer"
		return 1
	fi
	if look && printf '%s\n%s\n' "$wanted" "$there" >"$state.$$" && mv -f "$state.$$" "$state"; then return 0; fi
	rm -f "$state.$$"
	return 1
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
