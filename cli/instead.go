package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/registry"
)

// checkWords refuses lines whose words are no command before their flags are looked at: cobra would call those wrong.
func (a *App) checkWords(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) || args[0] == "help" {
		return nil
	}
	words, flags := args, []string(nil)
	if i := slices.IndexFunc(args, func(s string) bool { return len(s) > 1 && s[0] == '-' }); i > 0 {
		words, flags = args[:i], args[i:]
	}
	for _, c := range root.Commands() {
		if c.Name() == args[0] || c.HasAlias(args[0]) {
			return a.checkVerbLast(words, flags)
		}
	}
	_, bad := a.Index.ParseAddress(words)
	if meant := registry.Retired(words[0]); bad != nil && meant != nil {
		bad = a.meant(bad, meant, words[1:], flags)
	}
	return a.unknownCommand(args[0], bad)
}

// meant says what a word of another tool is here: with the words and flags that were given where they make a command, and
// otherwise what could have followed.
func (a *App) meant(bad *registry.AddressError, meant *registry.Meant, words, flags []string) *registry.AddressError {
	if commands := a.instead(meant.Word, words, flags); len(commands) > 0 {
		bad.Valid, bad.Hints = nil, commands
		return bad
	}
	for i, flag := range flags {
		if (flag == "-f" || flag == "--file") && i+1 < len(flags) {
			bad.Hints[0] = strings.ReplaceAll(bad.Hints[0], "FILE", quote(flags[i+1]))
		}
	}
	if slices.Contains(meant.Verbs, "create") || slices.Contains(meant.Verbs, "update") {
		bad.Valid = slices.DeleteFunc(a.bodyAddresses(), func(form string) bool {
			return !slices.Contains(meant.Verbs, strings.Fields(form)[1])
		})
	}
	return bad
}

// checkVerbLast proposes the line that has its verb in front, when a read ends in one.
func (a *App) checkVerbLast(words, flags []string) error {
	last := words[len(words)-1]
	if len(words) < 2 || a.Index.Find(words[0]) == nil {
		return nil
	}
	_, bad := a.Index.ParseAddress(words)
	writes := slices.ContainsFunc(flags, func(f string) bool {
		return strings.HasPrefix(f, "-f") || f == "--file" || strings.HasPrefix(f, "--file=") || strings.HasPrefix(f, "--replicas")
	})
	if !writes && (bad == nil || bad.Code != registry.ErrUnknownChild && bad.Code != registry.ErrTooManyWords || bad.Word != last) {
		return nil
	}
	commands := a.instead(last, words[:len(words)-1], flags)
	if len(commands) == 0 {
		return nil
	}
	return clierr.New(registry.ErrUnknownChild, "%q stands last, and a verb stands first", last).Hint(commands...)
}

// instead returns the commands that a misplaced verb, or a word of another tool, meant with these words and flags; none
// when they do not make one.
func (a *App) instead(word string, words, flags []string) []string {
	verbs := []string{word}
	if meant := registry.Retired(word); meant != nil {
		verbs = meant.Verbs
	} else if !slices.Contains(a.verbs(), word) {
		return nil
	}
	if len(words) > 0 && a.Index.Find(words[0]) == nil {
		if r := a.Index.ByKind(words[0]); r != nil && r.Parent == "" {
			words = append([]string{r.Plural}, words[1:]...)
		}
	}
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil {
		return nil
	}
	for _, verb := range verbs {
		if verb == "" {
			_, bad = a.Index.Read(addr)
		} else {
			_, bad = a.Index.Write(verb, addr)
		}
		if bad == nil {
			return a.lines(targetOf(verb, addr), addr, flags)
		}
	}
	return nil
}

// lines are the command of a target with what it takes of the flags, after the one that writes its file when there is none.
func (a *App) lines(t target, addr registry.Address, flags []string) []string {
	kept, given := a.keepFlags(t, flags)
	line := commandOf(t, addr)
	switch g := a.groups(t); {
	case t.verb != "" && g&groupBody != 0 && !given["file"]:
		start := "abx " + quoteWords(addr.Words()) + " --editable > FILE"
		if t.verb == "create" {
			start = line + " --editable > FILE"
		}
		return []string{start, line + kept + " -f FILE"}
	case g&groupScale != 0 && !given["replicas"]:
		kept += t.resource.Needs(t.verb)
	}
	return []string{line + kept}
}

// keepFlags returns the flags that the target takes, as they are typed, and their names.
func (a *App) keepFlags(t target, flags []string) (string, map[string]bool) {
	var b strings.Builder
	names := map[string]bool{}
	for i := 0; i < len(flags); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(flags[i], "-"), "=")
		at := slices.IndexFunc(flagTable(), func(f flagDef) bool { return f.Name == name || f.Short == name })
		if at < 0 {
			continue
		}
		f, written := flagTable()[at], quote(flags[i])
		if f.Arg != "" && !joined && i+1 < len(flags) {
			i++
			written += " " + quote(flags[i])
		}
		if a.takes(t, f) && f.Name != "api-key" {
			names[f.Name] = true
			b.WriteString(" " + written)
		}
	}
	return b.String(), names
}
