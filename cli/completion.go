package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/config"
	"navix.sh/agentbox/registry"
)

const (
	// lookupLimit is the longest time that a press of the tab key may wait for names.
	lookupLimit = 300 * time.Millisecond
	// namesFresh is how long names that were looked up are used again.
	namesFresh = 60 * time.Second
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

// completionCommand is `abx completion <shell>`. It needs no configuration.
func (a *App) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "The completion script of a shell",
		Long:      "Save the script where the shell looks for it; sourcing it at every start costs time. It completes names of existing objects too.",
		ValidArgs: shells,
		Args:      words(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Out)
			}
			return clierr.New(clierr.InvalidValue, "there is no completion for the shell %q", args[0]).
				Choices(shells, registry.Suggest(args[0], shells))
		},
		Annotations: map[string]string{annotationExamples: strings.Join([]string{
			"abx completion bash > ~/.local/share/bash-completion/completions/abx",
			"abx completion zsh > ~/.zfunc/_abx", "abx completion fish > ~/.config/fish/completions/abx.fish"}, "\n")},
	}
	addFlags(cmd, 0)
	return cmd
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// arrangeCompletion puts a line that is being completed into the order that arrange gives a whole one. The last word is not
// finished and stays last, behind the flag whose value it is. Where the next word is a command, the finished flags are left
// out, because cobra offers no commands behind a flag, and the flags of all those commands are known.
func arrangeCompletion(root *cobra.Command, args []string) []string {
	if len(args) < 2 || slices.Contains(args, "--") {
		return args
	}
	done, last := args[1:len(args)-1], args[len(args)-1:]
	if len(done) > 0 {
		if f := treeFlags(root)[done[len(done)-1]]; f != nil && f.NoOptDefVal == "" {
			done, last = done[:len(done)-1], args[len(args)-2:]
		}
	}
	arranged, err := arrange(root, done)
	if err != nil {
		return args
	}
	words := arranged
	if i := slices.IndexFunc(arranged, func(s string) bool { return len(s) > 1 && s[0] == '-' }); i >= 0 {
		words = arranged[:i]
	}
	if cmd, rest, err := root.Find(words); err == nil && len(rest) == 0 && cmd.HasSubCommands() {
		arranged = words
		for _, f := range treeFlags(cmd) {
			if cmd.Flags().Lookup(f.Name) == nil {
				f.Hidden = true // usable, and not among the command's own
				cmd.Flags().AddFlag(f)
			}
		}
	}
	return slices.Concat(args[:1], arranged, last)
}

// completeWords completes the words of a read.
func (a *App) completeWords(plural string) completer {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return matching(a.nextWords(cmd, "", append([]string{plural}, args...)), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeVerb completes the address after a verb.
func (a *App) completeVerb(verb string) completer {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return matching(a.nextWords(cmd, verb, args), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// nextWords are the words that can follow in an address.
func (a *App) nextWords(cmd *cobra.Command, verb string, words []string) []string {
	if len(words) == 0 {
		return a.reachable(a.Index.Roots(), verb)
	}
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil || addr.View != nil || !a.reaches(addr.Resource, verb) {
		return nil
	}
	r := addr.Resource
	if addr.Collection() {
		if verb == "create" && !a.childReaches(r, verb) {
			return nil
		}
		return a.names(cmd, addr)
	}
	next := a.reachable(a.children(r), verb)
	if verb == "" {
		for _, v := range r.Views {
			word := v.Name
			if v.Operation == "" {
				word += "\tonly in the console"
			}
			next = append(next, word)
		}
	}
	return next
}

// reaches reports whether the verb exists on the resource or below it; every read does.
func (a *App) reaches(r *registry.Resource, verb string) bool {
	return verb == "" || r.Verb(verb) != nil || r.Action(verb) != nil || a.childReaches(r, verb)
}

func (a *App) childReaches(r *registry.Resource, verb string) bool {
	return slices.ContainsFunc(r.Children, func(child string) bool { return a.reaches(a.Index.Find(child), verb) })
}

// completeFlags completes the values of flags that are not a closed set.
func (a *App) completeFlags(cmd *cobra.Command) {
	register := func(flag string, complete completer) {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete)
		}
	}
	register("context", func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return matching(a.contextNames(), prefix), cobra.ShellCompDirectiveNoFileComp
	})
	register("cluster", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		addr, bad := a.Index.ParseAddress([]string{"clusters"})
		if bad != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(a.names(cmd, addr), prefix), cobra.ShellCompDirectiveNoFileComp
	})
	register("filter", func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return matching(a.filterWords(cmd, args, prefix), prefix), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	register("sort", func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return matching(a.columnNames(cmd, args), prefix), cobra.ShellCompDirectiveNoFileComp
	})
	register("fields", func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return fieldWords(a.columnNames(cmd, args), prefix), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// columnNames are the columns of a list, or the detail lines of one object that has some.
func (a *App) columnNames(cmd *cobra.Command, args []string) []string {
	addr, bad := a.Index.ParseAddress(append([]string{cmd.Name()}, args...))
	if bad != nil {
		return nil
	}
	of := register{item: !addr.Collection()}
	var names []string
	for _, f := range a.namedFields(addr.Resource, of) {
		names = append(names, f.id)
	}
	return names
}

// fieldWords completes the last of the names in a list of them, without those that stand before it.
func fieldWords(names []string, prefix string) []string {
	given, last := "", prefix
	if i := strings.LastIndexByte(prefix, ','); i >= 0 {
		given, last = prefix[:i+1], prefix[i+1:]
	}
	var words []string
	for _, name := range names {
		if strings.HasPrefix(name, last) && !slices.Contains(strings.Split(given, ","), name) {
			words = append(words, given+name)
		}
	}
	return words
}

func (a *App) resourceOf(cmd *cobra.Command, args []string) *registry.Resource {
	addr, bad := a.Index.ParseAddress(append([]string{cmd.Name()}, args...))
	if bad != nil {
		return nil
	}
	return addr.Resource
}

// filterWords completes a --filter: its key first, then the values of a closed set.
func (a *App) filterWords(cmd *cobra.Command, args []string, prefix string) []string {
	r := a.resourceOf(cmd, args)
	if r == nil {
		return nil
	}
	var list []string
	for _, f := range r.Filters {
		if key, _, has := strings.Cut(prefix, "="); has && key == f.Key {
			for _, v := range f.Values {
				list = append(list, f.Key+"="+v)
			}
			return list
		}
		list = append(list, f.Key+"=")
	}
	return list
}

func matching(list []string, prefix string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, prefix) })
}

// names are the ids that exist at a collection: from the cache when they are fresh,
// otherwise from the server if it answers at once. Whatever goes wrong, there are none.
func (a *App) names(cmd *cobra.Command, addr registry.Address) []string {
	if addr.Resource.List == nil {
		return nil
	}
	settings, _, err := a.settings(cmd)
	if err != nil || settings.Address() == "" {
		return nil
	}
	cache := a.namesFile(settings, addr)
	if list, ok := readNames(cache); ok {
		return list
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), lookupLimit)
	defer cancel()
	cmd.SetContext(ctx)
	s, err := a.connect(cmd)
	if err != nil {
		return nil
	}
	defer s.close()
	api, err := s.listAPI(ctx, addr.Resource)
	if err != nil {
		return nil
	}
	all, err := a.fetch(ctx, api, addr, nil, pageSize)
	if err != nil {
		return nil
	}
	list := []string{}
	for _, v := range all.values {
		id := rowID(addr.Resource, v)
		// What a shell would split or a terminal would obey is not offered.
		if id != "" && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || r > 0x7f && r < 0xa0 }) {
			list = append(list, id)
		}
	}
	writeNames(cache, list)
	return list
}

// namesFile is where names of a collection are kept; its name hides address and key.
func (a *App) namesFile(s config.Settings, addr registry.Address) string {
	dir := a.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		home := a.Getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".cache")
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Address(), s.Context.Value, s.Cluster.Value, s.APIKey.Value, addr.String()}, "\n")))
	return filepath.Join(dir, "abx", "names", hex.EncodeToString(sum[:12])+".json")
}

func readNames(path string) ([]string, bool) {
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) > namesFresh {
		return nil, false
	}
	data, err := os.ReadFile(path)
	var list []string
	if err != nil || json.Unmarshal(data, &list) != nil {
		return nil, false
	}
	return list, true
}

// writeNames is best effort: without a cache, names are looked up again.
func writeNames(path string, list []string) {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	if data, err := json.Marshal(list); err == nil {
		_ = config.WriteFile(path, data)
	}
}
