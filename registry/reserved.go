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

// Meant are the words that other tools, or an earlier abx, have as a command, and what they mean here.
type Meant struct {
	Word string
	// Verbs are those of abx that do it; the first that fits the address is meant. "" is a read.
	Verbs []string
	Hint  string // the form, when the words that follow make no command
}

var retired = []Meant{
	{"apply", []string{"create", "update"}, "abx create <address> -f FILE, or abx update <address> <id> -f FILE"},
	{"patch", []string{"update"}, "abx update <address> <id> -f FILE (an update replaces the whole object: start from --editable)"},
	{"post", []string{"create"}, "abx create <address> -f FILE"},
	{"put", []string{"update"}, "abx update <address> <id> -f FILE"},
	{"get", []string{""}, "abx <resource> [<id>] (reads have no verb)"},
	{"list", []string{""}, "abx <resource> (reads have no verb)"},
	{"describe", []string{""}, "abx <resource> <id> (reads have no verb)"},
	{"show", []string{""}, "abx <resource> <id> (reads have no verb)"},
	{"rm", []string{"delete"}, "abx delete <address> <id>"},
	{"remove", []string{"delete"}, "abx delete <address> <id>"},
	{"edit", []string{"update"}, "abx <address> <id> --editable > FILE, then abx update <address> <id> -f FILE"},
	{"logs", nil, "abx sandboxes <sandbox> logs"},
	{"login", nil, "abx context set <name> --endpoint URL --api-key-stdin"},
}

// Retired returns what replaces a word which other tools, or an earlier abx, have as a
// command; nil when the word is none of them.
func Retired(word string) *Meant {
	for i := range retired {
		if retired[i].Word == word {
			return &retired[i]
		}
	}
	return nil
}

// Reserved are the words that no resource, child, view or action may be called:
// verbs, other commands and retired words. Actions are verbs too, but come from the
// document.
func Reserved() []string {
	words := append(append([]string(nil), Verbs...), Commands...)
	for _, r := range retired {
		if r.Word != "logs" { // a view of that name exists; it never stands first
			words = append(words, r.Word)
		}
	}
	return words
}
