package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navix.sh/agentbox/cli/body"
	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
	"navix.sh/agentbox/registry"
)

// actionBody is the fixed body of an action, with what its flags set.
func actionBody(cmd *cobra.Command, act *registry.Action) ([]byte, error) {
	if act.Body == "" {
		return nil, nil
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(act.Body), &members); err != nil {
		return nil, clierr.New(clierr.Internal, "the body of %s is not JSON: %v", act.Name, err)
	}
	for _, f := range act.Flags {
		if !cmd.Flags().Changed(f.Name) {
			continue
		}
		value, _ := cmd.Flags().GetString(f.Name)
		if len(f.Values) > 0 && !slices.Contains(f.Values, value) {
			return nil, clierr.New(clierr.InvalidValue, "--%s %q does not exist", f.Name, value).Choices(f.Values, registry.Suggest(value, f.Values))
		}
		members[f.Name] = value
	}
	return output.MarshalJSON(members)
}

// prepareBody reads the file and checks it against the schema.
func (a *App) prepareBody(cmd *cobra.Command, w *write) error {
	path, _ := cmd.Flags().GetString("file")
	if path == "" {
		return a.missingFile(w)
	}
	if fromStdin, _ := cmd.Flags().GetBool("api-key-stdin"); fromStdin && path == "-" {
		return clierr.New(clierr.InvalidValue, "the body and the key cannot both come from standard input").
			Hint("give the key in AGENTBOX_API_KEY, or the body as a file")
	}
	object, err := body.Load(path, a.In)
	if err != nil {
		return err
	}
	w.file = path
	if w.etag, err = takeVersion(object); err != nil {
		return err
	}
	w.body = wrapObject(a.Index, w.op, object)
	address := "abx " + w.verb + " " + quoteWords(w.addr.Words())
	if kind, ok := w.body["kind"].(string); ok && w.body["apiVersion"] != nil {
		return clierr.New(clierr.InvalidBody, "this is a Kubernetes object (%s), and `%s` takes a body of its own", kind, address).
			Hint(address+" --schema", "kubectl apply -f "+quoteWords([]string{path})+" for who may write to the cluster itself")
	}
	if err := body.Validate(a.Index, w.op.Request.Schema, w.body); err != nil {
		return clierr.From(err).Hint(address+" --help", address+" --schema")
	}
	if name, ok := w.body["name"].(string); ok && w.verb == "update" && name != w.addr.ID() {
		return clierr.New(clierr.InvalidBody, "the body is for %q and the address names %q", name, w.addr.ID()).
			Hint("a name cannot change: correct the address or the file")
	}
	return nil
}

// takeVersion takes the version that the file was read at out of it. A version that cannot be sent is refused: without it the
// write would not be protected.
func takeVersion(object map[string]any) (string, error) {
	value, given := object[versionKey]
	delete(object, versionKey)
	if !given {
		return "", nil
	}
	etag, isText := value.(string)
	if !isText || etag == "" || strings.ContainsFunc(etag, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", clierr.New(clierr.InvalidBody, "%s is %s, which is no version that --editable wrote", versionKey, compact(value)).
			Hint("leave it as it was read, or out to write without looking at what changed since")
	}
	return etag, nil
}

// wrapObject lets a write that takes a whole Kubernetes object as text also take the
// object itself, as kubectl would print it.
func wrapObject(ix *registry.Index, op *registry.Operation, object map[string]any) map[string]any {
	schema := ix.Schema(op.Request.Schema)
	if schema == nil || schema.Field("crdJson") == nil || object["apiVersion"] == nil || object["kind"] == nil {
		return object
	}
	data, err := output.MarshalJSON(object)
	if err != nil {
		return object
	}
	return map[string]any{"crdJson": string(data)}
}

// missingFile says what the file of a write holds and how to get one.
func (a *App) missingFile(w *write) error {
	address := quoteWords(w.addr.Words())
	e := clierr.New(clierr.MissingValue, "%s needs a file: abx %s %s -f FILE (- is standard input)", w.verb, w.verb, address)
	if schema := a.Index.Schema(w.op.Request.Schema); schema != nil {
		var names []string
		for _, f := range schema.Fields {
			switch name := f.Name; {
			case f.Required:
				names = append(names, name+" (required)")
			case f.Fixed:
				names = append(names, name+" (fixed at create)")
			default:
				names = append(names, name)
			}
		}
		e.Hint("its fields: " + strings.Join(names, ", "))
	}
	if w.verb == "update" {
		e.Hint("an update replaces everything, so begin with what is there: abx "+address+" --editable > FILE",
			"what the file leaves out is removed")
	} else {
		e.Hint("begin with an example: abx create " + address + " --editable > FILE")
	}
	return e.Hint("abx "+w.verb+" "+address+" --help", "abx "+w.verb+" "+address+" --schema")
}

// printBlank prints the document's example of a create body, to be filled in.
func (a *App) printBlank(p printing, op *registry.Operation) error {
	if op.Request == nil || op.Request.Example == "" {
		return clierr.New(clierr.Unsupported, "there is no example of this body").Hint("use --schema")
	}
	example, err := output.Decode([]byte(op.Request.Example))
	if err != nil {
		return clierr.New(clierr.Internal, "the example of this body is not JSON: %v", err)
	}
	if p.format == output.YAML {
		return output.WriteYAML(a.Out, example)
	}
	return output.WriteIndented(a.Out, example)
}
