package cli

import (
	"context"
	"slices"
	"strings"
	"sync"

	"navix.sh/agentbox/cli/clierr"
)

// clusterFailure is a cluster whose list could not be read.
type clusterFailure struct {
	cluster string
	err     *clierr.Error
}

// maxClusters is how many clusters are asked at once.
const maxClusters = 8

// listEverywhere reads the list from every cluster behind the deployment, several at
// once. A cluster that fails does not hide the others.
func (a *App) listEverywhere(ctx context.Context, s *session, out *list, l listing) error {
	if s.settings.Direct() {
		return clierr.New(clierr.Unsupported, "%s is the API of one cluster; --all-clusters needs the console's address", s.settings.Address()).
			Hint("use --endpoint instead of --cluster-api")
	}
	ids, err := s.clusterIDs(ctx)
	if err != nil {
		return err
	}
	// A cluster that a filter leaves out is not asked: what is wrong with it is no matter of this list.
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(l.filters, func(f filterArg) bool { return f.Key == clusterField.id && !f.matches(row{cluster: id}) })
	})
	limit := -1
	if len(l.filters) == 0 && l.sort == nil && out.addr.Resource.List.Expand == "" {
		limit = l.limit
	}
	answers := make([]found, len(ids))
	errs := make([]error, len(ids))
	slots := make(chan struct{}, maxClusters)
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers[i], errs[i] = a.fetch(ctx, s.at(id), out.addr, l.filters, limit)
		})
	}
	wg.Wait()
	for i, id := range ids {
		if errs[i] != nil {
			out.failures = append(out.failures, clusterFailure{id, clierr.From(errs[i])})
			continue
		}
		out.take(answers[i], l, id)
	}
	out.repeat = " --all-clusters"
	return ctx.Err()
}

// partial is the error of a list that some clusters did not answer; nil when all did.
func partial(failures []clusterFailure) error {
	if len(failures) == 0 {
		return nil
	}
	first := failures[0]
	if len(failures) == 1 {
		e := *first.err
		e.Message = "cluster " + first.cluster + " did not answer: " + e.Message
		return &e
	}
	var names []string
	for _, f := range failures {
		names = append(names, f.cluster)
	}
	e := *first.err
	e.Message = "clusters " + strings.Join(names, ", ") + " did not answer; the first: " + e.Message
	return &e
}

func failuresJSON(failures []clusterFailure) []any {
	var list []any
	for _, f := range failures {
		list = append(list, map[string]any{"cluster": f.cluster, "code": f.err.Code, "message": f.err.Message})
	}
	return list
}
