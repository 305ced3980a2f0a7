package native

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

type eventItem struct {
	Type           string    `json:"type"`
	Reason         string    `json:"reason"`
	Object         string    `json:"object"`
	InvolvedKind   string    `json:"involvedKind"`
	InvolvedName   string    `json:"involvedName"`
	Action         string    `json:"action,omitempty"`
	Message        string    `json:"message"`
	Count          int32     `json:"count"`
	FirstTimestamp time.Time `json:"firstTimestamp,omitzero"`
	LastTimestamp  time.Time `json:"lastTimestamp,omitzero"`

	name string
}

// listEvents lists what happened to an env, its pools and their Pods, newest first.
func listEvents(c *call) (*response, error) {
	env, err := c.findEnv(access.VerbList, access.KindEnv)
	if err != nil {
		return nil, err
	}
	return lister[eventItem]{
		kind: "event",
		rows: func(ctx context.Context) ([]eventItem, error) {
			return c.envEvents(ctx, env)
		},
		key: func(r eventItem) string { return r.name },
		filters: map[string]func(eventItem) string{
			"type":    func(r eventItem) string { return r.Type },
			"reason":  func(r eventItem) string { return r.Reason },
			"object":  func(r eventItem) string { return r.Object },
			"message": func(r eventItem) string { return r.Message },
		},
		changes:      c.watchObjects(&corev1.EventList{}, client.InNamespace(env.Namespace)),
		defaultLimit: 100,
	}.serve(c)
}

func (c *call) envEvents(ctx context.Context, env *v1alpha1.SandboxEnv) ([]eventItem, error) {
	// The pools are read again: a watch outlives the ones that it began with.
	var now v1alpha1.SandboxEnv
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(env), &now); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	pools := map[string]bool{}
	for _, m := range catalogue.Members(&now) {
		pools[m.Name] = true
	}
	var list corev1.EventList
	if err := c.Client.List(ctx, &list, client.InNamespace(env.Namespace)); err != nil {
		return nil, err
	}
	var out []eventItem
	for i := range list.Items {
		if about(&list.Items[i], &now, pools) {
			out = append(out, eventItemOf(&list.Items[i]))
		}
	}
	slices.SortStableFunc(out, func(a, b eventItem) int {
		if c := b.LastTimestamp.Compare(a.LastTimestamp); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return out, nil
}

// about reports whether an event is about an env, one of its pools, or a Pod of theirs. A Pod is called after its pool,
// with a suffix that holds no hyphen.
func about(e *corev1.Event, env *v1alpha1.SandboxEnv, pools map[string]bool) bool {
	o := e.InvolvedObject
	switch o.Kind {
	case "SandboxEnv":
		return o.Name == env.Name && (o.UID == "" || o.UID == env.UID)
	case "SandboxPool":
		return pools[o.Name]
	case "Pod":
		i := strings.LastIndexByte(o.Name, '-')
		return i > 0 && pools[o.Name[:i]]
	}
	return false
}

func eventItemOf(e *corev1.Event) eventItem {
	item := eventItem{
		Type: e.Type, Reason: e.Reason, Object: strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
		InvolvedKind: e.InvolvedObject.Kind, InvolvedName: e.InvolvedObject.Name, Action: e.Action, Message: e.Message,
		Count: max(e.Count, 1), FirstTimestamp: e.FirstTimestamp.UTC(), LastTimestamp: e.LastTimestamp.UTC(), name: e.Name,
	}
	if e.Type != corev1.EventTypeWarning {
		item.Type = corev1.EventTypeNormal
	}
	// Events of the newer API have one time, and a series when they repeat.
	if item.FirstTimestamp.IsZero() {
		item.FirstTimestamp = e.EventTime.UTC()
	}
	if item.LastTimestamp.IsZero() {
		item.LastTimestamp = item.FirstTimestamp
	}
	if e.Series != nil {
		item.Count, item.LastTimestamp = e.Series.Count, e.Series.LastObservedTime.UTC()
	}
	return item
}
