package e2b

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/claim"
)

const maxPage = 100

// listV1 is the list of SDK 1.x: running sandboxes, all of them.
func (h *Handler) listV1(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("metadata")
	if err != nil {
		return reply{}, err
	}
	found, err := h.running(ctx, c, q)
	if err != nil {
		return reply{}, err
	}
	sortByStart(found, false)
	return reply{Status: http.StatusOK, Body: listedAll(found)}, nil
}

// listV2 is the paged and filtered list.
func (h *Handler) listV2(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("metadata", "state", "order", "startedAfter", "template", "limit", "nextToken")
	if err != nil {
		return reply{}, err
	}
	order, err := enumParam(q, "order", "desc", "asc")
	if err != nil {
		return reply{}, err
	}
	limit, err := intParam(q, "limit", maxPage, 1, maxPage)
	if err != nil {
		return reply{}, err
	}
	wantsRunning, err := statesAskRunning(q)
	if err != nil {
		return reply{}, err
	}
	keep, err := h.listFilter(ctx, c, q)
	if err != nil {
		return reply{}, err
	}
	ascending := order == "asc"
	var from *cursor
	if token := q.Get("nextToken"); token != "" {
		c, err := parseCursor(token, ascending)
		if err != nil {
			return reply{}, err
		}
		from = &c
	}
	if !wantsRunning {
		return reply{Status: http.StatusOK, Body: []listedBody{}}, nil
	}
	found, err := h.running(ctx, c, q)
	if err != nil {
		return reply{}, err
	}
	found = slices.DeleteFunc(found, func(sb claim.Sandbox) bool { return !keep(sb) })
	sortByStart(found, ascending)

	header := http.Header{"X-Total-Running": {strconv.Itoa(len(found))}}
	if from != nil {
		found = slices.DeleteFunc(found, func(sb claim.Sandbox) bool { return !from.after(startOf(sb), sb.ID) })
	}
	if len(found) > int(limit) {
		found = found[:limit]
		last := found[limit-1]
		header.Set("X-Next-Token", cursor{At: startOf(last), ID: last.ID, Ascending: ascending}.String())
	}
	return reply{Status: http.StatusOK, Body: listedAll(found), Header: header}, nil
}

// running returns the caller's running sandboxes that carry the metadata asked for.
func (h *Handler) running(ctx context.Context, c *call, q url.Values) ([]claim.Sandbox, error) {
	metadata, err := parseMetadataFilter(q.Get("metadata"))
	if err != nil {
		return nil, err
	}
	owner := claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
	err = c.authorize(access.VerbList, access.Object{Kind: access.KindSandbox, Namespace: owner.Namespace, Team: owner.Team, User: owner.User})
	if err != nil {
		return nil, err
	}
	return h.claims.List(ctx, claim.Filter{Owner: owner, Metadata: metadata, Statuses: []claim.Status{claim.StatusRunning}})
}

// statesAskRunning reads the comma-separated states; absent means both.
func statesAskRunning(q url.Values) (bool, error) {
	states := strings.Join(q["state"], ",")
	if states == "" {
		return true, nil
	}
	running := false
	for state := range strings.SplitSeq(states, ",") {
		switch state {
		case stateRunning:
			running = true
		case "paused":
		default:
			return false, badRequest("validation error: state=%q: want running, paused or both, joined by a comma", state)
		}
	}
	return running, nil
}

// listFilter reads the filters that the claims do not know.
func (h *Handler) listFilter(ctx context.Context, c *call, q url.Values) (func(claim.Sandbox) bool, error) {
	var after time.Time
	if text := q.Get("startedAfter"); text != "" {
		var err error
		// A plus sign that was sent raw arrives as a blank.
		if after, err = time.Parse(time.RFC3339, strings.ReplaceAll(text, " ", "+")); err != nil {
			return nil, badRequest("validation error: startedAfter=%q: want an RFC 3339 time such as 2026-01-31T12:00:00Z", text)
		}
	}
	var template Reference
	if text := q.Get("template"); text != "" {
		var err error
		if template, err = ParseReference(text); err != nil {
			if strings.Contains(text, ":") {
				return nil, badRequest("validation error: template=%q: %v", text, err)
			}
			return func(claim.Sandbox) bool { return false }, nil // nothing here has such a name, as E2B's may
		}
		envs, err := h.environments(ctx, c)
		if err != nil {
			return nil, err
		}
		if env, err := pick(envs, template.Name); err != nil {
			return nil, err
		} else if env != nil {
			template.Name = env.Name
		}
	}
	return func(sb claim.Sandbox) bool {
		switch {
		case startOf(sb).Before(after):
			return false
		case template.Name == "":
			return true
		case template.Cluster != "" && template.Cluster != h.cluster:
			return false
		default:
			return template.Name == sb.Env || template.Name == sb.Pool
		}
	}, nil
}

func sortByStart(list []claim.Sandbox, ascending bool) {
	slices.SortFunc(list, func(a, b claim.Sandbox) int {
		order := compareStart(startOf(a), a.ID, startOf(b), b.ID)
		if ascending {
			return order
		}
		return -order
	})
}

func listedAll(list []claim.Sandbox) []listedBody {
	out := make([]listedBody, 0, len(list))
	for _, sb := range list {
		out = append(out, listed(sb))
	}
	return out
}
