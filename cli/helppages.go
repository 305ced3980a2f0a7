package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/registry"
)

// rootHelp is the first page: what this is, one line that works, and what there is.
func (a *App) rootHelp(h *helpPage, root *cobra.Command) {
	h.title("abx", root.Short)
	h.paragraph("Sandboxes themselves are created and driven with the E2B SDK; abx prepares where they run.")
	h.section("Try")
	h.commands([]string{
		"abx context set prod --endpoint URL --api-key-stdin < KEYFILE # once",
		"abx clusters # what the address reaches",
		"abx envs # what exists",
		"abx agent-context # everything below, as one JSON document for an agent",
	})
	h.section("Usage")
	h.lines("abx <resource> [<id> [<child> [<child-id> [<view>]]]]      read",
		"abx "+strings.Join(a.verbs(), "|")+" <address>      write")
	h.paragraph("A verb stands first and nowhere else; all that follows is an address, so an env may be called create. Reads have no verb.")
	h.section("Resources")
	var list []entry
	for _, r := range a.Index.Roots() {
		about := firstSentence(r.Summary)
		if r.Admin {
			about += " (admin)"
		}
		list = append(list, entry{r.Plural, about})
		for _, child := range r.Children {
			list = append(list, entry{"  " + child, firstSentence(a.Index.Find(child).Summary)})
		}
	}
	h.entries(list)
	h.section("Writes")
	var verbs []entry
	for _, v := range a.verbs() {
		verbs = append(verbs, entry{v, verbSummary(v)})
	}
	h.entries(verbs)
	h.section("Other commands")
	var others []entry
	for _, c := range root.Commands() {
		if !c.Hidden && a.Index.Find(c.Name()) == nil && lookupEntry(verbs, c.Name()) < 0 {
			others = append(others, entry{c.Name(), c.Short})
		}
	}
	h.entries(others)
	h.paragraph("Exit codes: 0 done, 1 server, 2 usage, 3 not allowed, 4 not found, 5 timeout, 6 capacity, 7 conflict, 8 approval, 9 unreachable, 130 interrupted. With --json, errors are JSON on standard error.")
}

func lookupEntry(list []entry, name string) int {
	for i := range list {
		if list[i].name == name {
			return i
		}
	}
	return -1
}

// resourceHelp is the page of a resource: what it is, how to read it, how to write it.
func (a *App) resourceHelp(h *helpPage, r *registry.Resource) {
	h.title("abx "+a.Index.Form(r), r.Summary)
	h.paragraph(r.Describe)
	h.paragraph(r.Note)
	if len(r.Examples) > 0 {
		h.section("Examples")
		var lines []string
		for _, e := range r.Examples {
			lines = append(lines, exampleLine(e))
		}
		h.commands(lines)
	}
	h.section("Read")
	h.entries(a.readForms(r))
	if forms := a.writeForms(r); len(forms) > 0 {
		h.section("Write")
		h.entries(forms)
	}
	h.section("Columns, which are also the keys of --filter, --sort and --fields")
	var columns []entry
	for _, c := range r.Columns {
		about := firstSentence(c.Describe)
		if c.Wide {
			about = strings.TrimSpace(about + " (--wide)")
		}
		if f := r.Filter(c.ID); f != nil {
			if len(f.Values) > 0 {
				about = strings.TrimSpace(about + " [" + strings.Join(f.Values, "|") + "]")
			}
		} else {
			about = strings.TrimSpace(about + " (no filter)")
		}
		columns = append(columns, entry{c.ID, about})
	}
	h.entries(columns)
	if len(r.Detail) > 0 {
		var names []string
		for _, d := range r.Detail {
			names = append(names, d.ID)
		}
		for _, t := range r.Texts {
			names = append(names, t.ID+" (full text)")
		}
		h.section("One " + r.Kind + " shows")
		h.lines(strings.Join(names, ", "))
	}
	if r.Gate != "" {
		h.paragraph("A deployment may have this switched off (feature gate " + r.Gate + ").")
	}
	if r.Admin {
		h.paragraph("It needs an admin key.")
	}
	if url := docsURL(a.Index, r); url != "" {
		h.paragraph("Read more: " + url)
	}
}

func (a *App) readForms(r *registry.Resource) []entry {
	var forms []entry
	if r.List != nil {
		about := "the list"
		if r.List.Single {
			about = "the figures"
		}
		forms = append(forms, entry{"abx " + a.Index.Form(r), about})
	}
	item := "abx " + a.Index.ItemForm(r)
	if r.Item != nil {
		forms = append(forms, entry{item, "one in full"})
	}
	for _, child := range r.Children {
		forms = append(forms, entry{item + " " + child, firstSentence(a.Index.Find(child).Summary)})
	}
	for _, v := range r.Views {
		forms = append(forms, entry{item + " " + v.Name, viewSummary(v)})
	}
	return forms
}

// viewSummary is what a view shows, and whether it is here at all.
func viewSummary(v registry.View) string {
	if v.Operation == "" {
		return "only in the console; the error names its page where there is one"
	}
	return firstSentence(v.Describe)
}

func (a *App) writeForms(r *registry.Resource) []entry {
	var forms []entry
	for _, v := range r.Verbs {
		form := "abx " + v.Name + " " + a.Index.ItemForm(r)
		switch {
		case v.Name == "create":
			form = "abx create " + a.Index.Form(r) + " -f FILE"
		case v.Name == "update":
			form += " -f FILE"
		case v.Sets != "":
			form += " --" + v.Sets + " N"
		}
		forms = append(forms, entry{form, forbidden(firstSentence(v.Describe), v.AgentForbidden)})
	}
	for _, act := range r.Actions {
		form := "abx " + act.Name + " " + a.Index.ItemForm(r)
		for _, f := range act.Flags {
			form += " [--" + f.Name + " " + strings.ToUpper(f.Name) + "]"
		}
		forms = append(forms, entry{form, forbidden(firstSentence(act.Describe), act.AgentForbidden)})
	}
	return forms
}

func forbidden(about, why string) string {
	if why != "" {
		about = strings.TrimSpace(about + " (never with an agent key)")
	}
	return about
}

func exampleLine(e registry.Example) string {
	if e.Describe == "" {
		return e.Command
	}
	return e.Command + " # " + e.Describe
}

// verbHelp is the page of a verb, or of a verb on an address: usage, an example, every field.
func (a *App) verbHelp(h *helpPage, verb string, words []string) error {
	if len(words) == 0 {
		h.title("abx "+verb, verbSummary(verb))
		h.section("Usage")
		var forms []entry
		for i := range a.Index.Resources {
			for _, f := range a.writeForms(&a.Index.Resources[i]) {
				if strings.HasPrefix(f.name, "abx "+verb+" ") {
					forms = append(forms, f)
				}
			}
		}
		h.entries(forms)
		h.paragraph("The page of one of them has its example and every field: abx " + verb + " <address> --help")
		return nil
	}
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil {
		return addressError(bad)
	}
	r := addr.Resource
	v, act := r.Verb(verb), r.Action(verb)
	if v == nil && act == nil {
		_, bad := a.Index.Write(verb, addr)
		if bad == nil {
			bad = &registry.AddressError{Code: registry.ErrUnsupportedVerb, Message: "unsupported"}
		}
		return addressError(bad)
	}
	operation, about, why := "", "", ""
	if v != nil {
		operation, about, why = v.Operation, v.Describe, v.AgentForbidden
	} else {
		operation, about, why = act.Operation, act.Describe, act.AgentForbidden
	}
	op := a.Index.Operation(operation)
	h.title("abx "+verb+" "+a.Index.Form(r), firstSentence(about))
	if v == nil || v.Sets == "" { // what is said of a body is not about a verb that has none
		h.paragraph(op.Description)
	}
	h.section("Usage")
	for _, f := range a.writeForms(r) {
		if strings.HasPrefix(f.name, "abx "+verb+" ") {
			h.lines(f.name)
		}
	}
	if why != "" {
		h.paragraph("An agent key may never do this: " + why)
	} else if op.Approval != "" {
		h.paragraph("With an agent key it waits for a person (operation " + op.Approval + "); --wait waits for the decision and completes it.")
	}
	if op.Request == nil || act != nil {
		return nil
	}
	if verb == "scale" {
		h.paragraph("It re-sends the current settings with one field changed, pinned to the version that was read.")
		return nil
	}
	a.bodyHelp(h, r, verb, op)
	return nil
}

// bodyHelp explains the file of a create or an update.
func (a *App) bodyHelp(h *helpPage, r *registry.Resource, verb string, op *registry.Operation) {
	form := a.Index.Form(r)
	if verb == "update" {
		item := a.Index.ItemForm(r)
		h.section("Begin with what is there")
		h.commands([]string{"abx " + item + " --editable > FILE", "abx update " + item + " -f FILE --dry-run # what would change",
			"abx update " + item + " -f FILE"})
		h.paragraph("An update replaces everything: a field that the file leaves out is removed. What --json prints is not this file. " +
			versionKey + " in the file is the version that was read: when somebody else changed it since, the update is refused.")
	} else {
		h.section("Begin with an example")
		h.commands([]string{"abx create " + form + " --editable > FILE", "abx create " + form + " -f FILE"})
	}
	if op.Request.Example != "" {
		h.section("Example")
		h.lines(op.Request.Example)
	}
	schema := a.Index.Schema(op.Request.Schema)
	if schema == nil {
		return
	}
	h.section("Fields of FILE (JSON or YAML; - is standard input)")
	var fields []entry
	for _, f := range a.fieldInfos(schema) {
		about := f.Type
		if f.Required {
			about += ", required"
		}
		if f.Fixed {
			about += ", fixed at create"
		}
		if f.Describe != "" {
			about += ": " + f.Describe
		}
		if f.Fixed && f.Lever != "" && verb == "update" {
			about += " Instead of changing it: " + f.Lever
		}
		fields = append(fields, entry{f.Name, about})
	}
	h.entries(fields)
	h.paragraph("All fields, nested ones too, as JSON: add --schema")
}

// firstSentence is the beginning of a description, for lists.
func firstSentence(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSuffix(s, ".")
}
