package native

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/access"
)

// names serves a list of plain strings.
func (c *call) names(kind string, rows func(context.Context) ([]string, error), changes changeSource) (*response, error) {
	itself := func(s string) string { return s }
	return lister[string]{
		kind: kind, rows: rows, key: itself, filters: map[string]func(string) string{"name": itself}, changes: changes,
	}.serve(c)
}

// distinct sorts, and drops what is there twice.
func distinct(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// listTeams lists the teams that keys were issued to.
func listTeams(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	return c.names("team", func(context.Context) ([]string, error) {
		var out []string
		for _, k := range c.Access.List() {
			out = append(out, k.Team)
		}
		return distinct(out), nil
	}, nil)
}

func listUsers(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	team := c.param("team")
	var users []string
	for _, k := range c.Access.List() {
		if k.Team == team {
			users = append(users, k.User)
		}
	}
	if len(users) == 0 {
		return nil, notFound("team", team, "list the admin-teams to see which there are")
	}
	return c.names("user", func(context.Context) ([]string, error) { return distinct(users), nil }, nil)
}

// listNamespaces lists the namespaces of tenants: those that keys work in.
func listNamespaces(c *call) (*response, error) {
	if err := c.admin(access.VerbList); err != nil {
		return nil, err
	}
	return c.names("namespace", func(ctx context.Context) ([]string, error) {
		var list corev1.NamespaceList
		if err := c.Client.List(ctx, &list); err != nil {
			return nil, err
		}
		tenants := map[string]bool{}
		for _, k := range c.Access.List() {
			tenants[k.Namespace] = true
		}
		var out []string
		for _, ns := range list.Items {
			if tenants[ns.Name] {
				out = append(out, ns.Name)
			}
		}
		return distinct(out), nil
	}, c.watchObjects(&corev1.NamespaceList{}))
}
