package registry

// Verbs are the words that write, in the first position of a command.
var Verbs = []string{"create", "update", "delete", "scale"}

// Commands are the other words of the first position.
var Commands = []string{
	"whoami", "context", "contexts", "agent-context", "skills", "completion",
	"version", "upgrade", "help",
}

// Flags are the long flags of the command line, without dashes, but for the
// options of views and the flags of actions, which come from the document. None of
// those may be called like one of these; a test of cli compares the list with the
// flags that exist.
var Flags = []string{
	"all-clusters", "allow-downgrade", "api-key", "api-key-stdin", "auth-scheme", "ca-file", "check",
	"cluster", "cluster-api", "color", "context", "csv", "dir", "dry-run", "editable",
	"endpoint", "fields", "file", "filter", "for", "force", "format", "help", "jq", "json",
	"limit", "replicas", "schema", "sort", "timeout", "version", "wait", "watch",
	"wide",
}

// QueryParams are query parameters that mean the same on every operation. No
// filter may be called like one of them.
var QueryParams = []string{"dryRun", "fields", "follow", "limit", "offset", "watch"}

// retired words are refused with the command that does what they meant.
var retired = []struct{ word, hint string }{
	{"apply", "abx create <address> -f FILE, or abx update <address> <id> -f FILE"},
	{"patch", "abx update <address> <id> -f FILE (an update replaces the whole object: start from --editable)"},
	{"post", "abx create <address> -f FILE"},
	{"put", "abx update <address> <id> -f FILE"},
	{"get", "abx <resource> [<id>] (reads have no verb)"},
	{"list", "abx <resource> (reads have no verb)"},
	{"describe", "abx <resource> <id> (reads have no verb)"},
	{"show", "abx <resource> <id> (reads have no verb)"},
	{"rm", "abx delete <address> <id>"},
	{"remove", "abx delete <address> <id>"},
	{"edit", "abx <address> <id> --editable > FILE, then abx update <address> <id> -f FILE"},
	{"logs", "abx sandboxes <sandbox> logs"},
	{"login", "abx context set <name> --endpoint URL --api-key-stdin"},
}

// Retired returns the form that replaces a word which other tools, or an earlier
// abx, have as a command; empty when the word is none of them.
func Retired(word string) string {
	for _, r := range retired {
		if r.word == word {
			return r.hint
		}
	}
	return ""
}

// Reserved are the words that no resource, child, view or action may be called:
// verbs, other commands and retired words. Actions are verbs too, but come from the
// document.
func Reserved() []string {
	words := append(append([]string(nil), Verbs...), Commands...)
	for _, r := range retired {
		if r.word != "logs" { // a view of that name exists; it never stands first
			words = append(words, r.word)
		}
	}
	return words
}
