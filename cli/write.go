package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/agentbox/cli/client"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// verbCommand is `abx <verb> <address>`.
func (a *App) verbCommand(verb string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   verb,
		Short: verbSummary(verb),
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.write(cmd, verb, args)
		},
		ValidArgsFunction: a.completeVerb(verb),
	}
	addAddressFlags(cmd, a.verbGroups(verb))
	a.completeFlags(cmd)
	return cmd
}

func verbSummary(verb string) string {
	switch verb {
	case "create":
		return "Make one; it must not exist yet"
	case "update":
		return "Replace the settings of one; it must exist"
	case "delete":
		return "Delete one, and what belongs to it"
	case "scale":
		return "Change the size of a pool"
	case "approve":
		return "Let a waiting write go through"
	case "deny":
		return "Refuse a waiting write"
	case "promote":
		return "Make a key known to every cluster"
	}
	return strings.ToUpper(verb[:1]) + verb[1:]
}

// write is one write: what was asked for, checked without a network.
type write struct {
	verb      string
	addr      registry.Address
	op        *registry.Operation
	forbidden string // why an agent key may never do it
	done      string // past tense, for the confirmation
	file      string // where the body came from
	body      map[string]any
	raw       []byte // a fixed body
	etag      string // version that the body was read at; empty when unknown
	replicas  int
	dryRun    bool
	wait      bool
	p         printing
	fields    []field // of the answer, as --fields names them
}

// write runs a write: everything that needs no network is judged first.
func (a *App) write(cmd *cobra.Command, verb string, words []string) error {
	addr, bad := a.Index.ParseAddress(words)
	if bad != nil {
		return a.badTarget(cmd, verb, words, bad)
	}
	at := addr
	if addr.Resource.Verb(verb) == nil && addr.Resource.Action(verb) == nil {
		at.View = nil // what the verb lacks matters more than the view
	}
	op, bad := a.Index.Write(verb, at)
	if bad != nil {
		return addressError(bad)
	}
	if err := a.checkFlags(cmd, verb, addr); err != nil {
		return err
	}
	if schema, _ := cmd.Flags().GetBool("schema"); schema {
		return a.printBodySchema(cmd, op)
	}
	p, err := a.printing(cmd)
	if err != nil {
		return err
	}
	if editable, _ := cmd.Flags().GetBool("editable"); editable {
		if verb == "create" {
			return a.printBlank(p, op)
		}
		return a.printEditable(cmd, addr)
	}
	w := &write{verb: verb, addr: addr, op: op, p: p}
	w.dryRun, _ = cmd.Flags().GetBool("dry-run")
	w.wait, _ = cmd.Flags().GetBool("wait")
	if err := a.prepare(cmd, w); err != nil {
		return err
	}
	if w.fields, err = a.answerFields(w); err != nil {
		return err
	}
	return a.send(cmd, w)
}

// badTarget is the refusal of an address behind a verb: only what the verb can do is valid there.
func (a *App) badTarget(cmd *cobra.Command, verb string, words []string, bad *registry.AddressError) error {
	e := addressError(bad)
	for i, h := range e.Hints {
		if rest, ok := strings.CutPrefix(h, "abx "); ok && !strings.HasSuffix(h, " --help") {
			e.Hints[i] = "abx " + verb + " " + rest
		}
	}
	switch bad.Code {
	case registry.ErrNoAddress:
		e.Message = verb + " needs an address"
		e.Choices(a.reachable(a.Index.Roots(), verb), "").Hint("abx "+verb+" --help", map[bool]string{true: "to update this program: abx upgrade"}[verb == "update"])
	case registry.ErrUnknownResource:
		e.Valid = a.reachable(a.Index.Roots(), verb)
		if !slices.Contains(e.Valid, e.Suggestion) {
			e.Suggestion = registry.Suggest(bad.Word, e.Valid)
		}
		if len(e.Hints) == 0 {
			e.Hint("abx " + verb + " --help")
		}
	case registry.ErrNotRoot:
		e.Valid = a.reachable(a.Index.Roots(), verb)
		flags := writtenFlags(cmd, func(*pflag.Flag) bool { return true })
		if !cmd.Flags().Changed("file") && !cmd.Flags().Changed("replicas") {
			flags += a.Index.Find(bad.Word).Needs(verb)
		}
		e.Hints[0] += flags
	case registry.ErrUnknownChild:
		before, _ := a.Index.ParseAddress(words[:slices.Index(words, bad.Word)])
		e.Valid = a.reachable(a.children(before.Resource), verb)
		e.Suggestion, e.Hints = registry.Suggest(bad.Word, e.Valid), nil
		e.Hint("abx " + verb + " --help")
	case registry.ErrTooManyWords:
		e.Hints = nil
		e.Hint("abx " + verb + " --help")
	}
	return e
}

// reachable are the resources of the list that the verb, or one below them, knows.
func (a *App) reachable(list []*registry.Resource, verb string) []string {
	var names []string
	for _, r := range list {
		if a.reaches(r, verb) {
			names = append(names, r.Plural)
		}
	}
	return names
}

func (a *App) children(r *registry.Resource) []*registry.Resource {
	var list []*registry.Resource
	if r != nil {
		for _, child := range r.Children {
			list = append(list, a.Index.Find(child))
		}
	}
	return list
}

// prepare fills in what the verb needs and checks it.
func (a *App) prepare(cmd *cobra.Command, w *write) error {
	if act := w.addr.Resource.Action(w.verb); act != nil {
		w.done, w.forbidden = act.Done, act.AgentForbidden
		var err error
		if w.raw, err = actionBody(cmd, act); err != nil {
			return err
		}
	} else {
		v := w.addr.Resource.Verb(w.verb)
		w.done, w.forbidden = pastTense(w.verb), v.AgentForbidden
	}
	if w.dryRun && w.wait {
		return clierr.New(clierr.InvalidValue, "--dry-run changes nothing, so there is nothing to --wait for").Hint("leave one of them out")
	}
	switch w.verb {
	case "create", "update":
		return a.prepareBody(cmd, w)
	case "scale":
		n := cmd.Flags().Lookup("replicas")
		if !n.Changed {
			return clierr.New(clierr.MissingValue, "scale needs the new size").Hint("abx scale " + quoteWords(w.addr.Words()) + " --replicas N")
		}
		w.replicas = n.Value.(*count).n
	}
	return nil
}

func pastTense(verb string) string {
	if strings.HasSuffix(verb, "e") {
		return verb + "d"
	}
	return verb + "ed"
}

// send carries the write out.
func (a *App) send(cmd *cobra.Command, w *write) error {
	s, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := s.waitContext(cmd.Context(), w.wait)
	defer cancel()
	api, err := s.api(ctx)
	if err != nil {
		return err
	}
	if err := a.checkAgent(ctx, s, api, w); err != nil {
		return err
	}
	if w.dryRun {
		if err := s.require(ctx, api, featureDryRun, "--dry-run"); err != nil {
			return err
		}
	}
	request, err := a.request(ctx, api, w)
	if err != nil {
		return err
	}
	answer, err := a.deliver(ctx, s, api, w, request)
	if err != nil {
		return err
	}
	if w.dryRun {
		return a.printDryRun(ctx, w, answer)
	}
	if w.verb == "update" && w.etag == "" {
		a.notePrecondition(ctx, s, api, w)
	}
	if w.wait {
		if err := a.await(ctx, api, w, answer); err != nil {
			return err
		}
	}
	if err := a.confirm(ctx, w, answer); err != nil {
		if e := clierr.From(err); e.Code == clierr.QueryFailed {
			return e.Hint("the " + w.verb + " itself was done")
		}
		return err
	}
	return nil
}

// notePrecondition says that an update could have overwritten somebody else's.
func (a *App) notePrecondition(ctx context.Context, s *session, api *client.Client, w *write) {
	if w.op.Header("If-Match") == nil {
		return
	}
	if ok, err := s.has(ctx, api, featureETag); err == nil && !ok {
		a.note("this deployment knows no preconditions: a change that somebody else made since the file was read is overwritten")
		return
	}
	a.note("the file carries no %s, so a change that somebody else made since it was read is overwritten; --editable writes one", versionKey)
}

// request builds the HTTP request of the write. It may read what is there first.
func (a *App) request(ctx context.Context, api *client.Client, w *write) (client.Request, error) {
	path, err := w.addr.URLPath(w.op)
	if err != nil {
		return client.Request{}, clierr.New(clierr.Internal, "%v", err)
	}
	request := client.Request{Method: w.op.Method, Path: path, Query: url.Values{}, Header: http.Header{}, Body: w.raw}
	if w.verb == "scale" {
		if err := a.readScale(ctx, api, w); err != nil {
			return request, a.missing(err, w.addr)
		}
	}
	if w.verb == "create" && w.addr.Parent != nil {
		if err := a.checkSizing(ctx, api, w); err != nil {
			return request, err
		}
	}
	if w.body != nil {
		if request.Body, err = output.MarshalJSON(w.body); err != nil {
			return request, clierr.New(clierr.Internal, "the body cannot be encoded: %v", err)
		}
	}
	if w.etag != "" && w.op.Header("If-Match") != nil {
		request.Header.Set("If-Match", w.etag)
	}
	if w.dryRun {
		request.Query.Set("dryRun", "true")
	}
	return request, nil
}

// readScale takes what an update of the object would take and changes the one field
// that scale sets, pinned to the version that was read.
func (a *App) readScale(ctx context.Context, api *client.Client, w *write) error {
	_, answer, err := a.getItem(ctx, api, w.addr)
	if err != nil {
		return err
	}
	file, err := editable(w.addr.Resource, answer)
	if err != nil {
		return err
	}
	w.etag, _ = file[versionKey].(string)
	delete(file, versionKey)
	file[w.addr.Resource.Verb(w.verb).Sets] = json.Number(itoa(w.replicas))
	w.body = file
	return nil
}

// checkAgent refuses what an agent key may never do before it is sent. When the
// identity cannot be read, the server decides.
func (a *App) checkAgent(ctx context.Context, s *session, api *client.Client, w *write) error {
	if w.forbidden == "" {
		return nil
	}
	answer, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: "/auth/whoami"})
	if err != nil {
		return nil
	}
	var who struct {
		Mode string `json:"mode"`
	}
	if json.Unmarshal(answer.Body, &who) != nil || who.Mode != "agent" {
		return nil
	}
	e := clierr.New(clierr.ForbiddenForAgent, "an agent key may never %s %s: %s", w.verb, w.addr.Resource.Plural, w.forbidden)
	if page := s.page(w.addr); page != "" {
		return e.Hint("a person does it here: " + page)
	}
	return e.Hint("a person does it with a key of their own: abx " + w.verb + " " + quoteWords(w.addr.Words()))
}

// explain adds to a refusal what it means for this write.
func (a *App) explain(err error, w *write) error {
	if err == nil {
		return nil
	}
	e := clierr.From(err)
	words := quoteWords(w.addr.Words())
	switch {
	case e.Status == http.StatusPreconditionFailed || e.Code == clierr.Conflict && w.verb != "create" && w.etag != "":
		e.Code, e.Exit = clierr.Conflict, clierr.ExitConflict
		if e.Status == http.StatusPreconditionFailed {
			e.Hints = nil // the server's advice is the same, without the command
		}
		if w.verb == "scale" {
			return e.Hint("it changed at this moment; run the same command again")
		}
		return e.Hint("read it again and repeat the change: abx " + words + " --editable > FILE")
	case e.Code == clierr.NotFound && w.verb == "update" && w.addr.Resource.Verb("create") != nil && a.absent(e, w.addr) == w.addr.Resource:
		return e.Hint("an update does not create; to create it: abx create " + quoteWords(w.addr.List().Words()) + " -f " + quote(w.file))
	case e.Code == clierr.NotFound:
		return a.missing(err, w.addr)
	case e.Code == clierr.ApprovalRequired:
		if e.Approval != nil && e.Approval.ID != "" && !strings.Contains(strings.Join(e.Hints, " "), e.Approval.Command()) {
			e.Hint(decideHint(e.Approval))
		}
		return e.Hint("run the same command again after a person has approved it, or add --wait to wait for that")
	case e.Code == clierr.Timeout && w.verb != "create" && slices.Contains([]string{"update", "delete", "scale"}, w.verb):
		return e.Hint("it may have been done all the same: abx " + words)
	}
	return err
}
