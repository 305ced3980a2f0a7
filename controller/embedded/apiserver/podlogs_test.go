package apiserver

import (
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func FuzzLogOptions(f *testing.F) {
	for _, seed := range []string{"", "follow=true&container=a&tailLines=5", "tailLines=-1", "sinceTime=yesterday", "sinceTime=2026-01-02T03:04:05Z&sinceSeconds=9", "follow=maybe", "limitBytes=99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Skip("not a query")
		}
		var o corev1.PodLogOptions
		if err := readLogOptions(v, &o); err != nil {
			return
		}
		for _, n := range []*int64{o.TailLines, o.LimitBytes, o.SinceSeconds} {
			if n != nil && *n < 0 {
				t.Errorf("%q was read as %d", query, *n)
			}
		}
		if o.Container != v.Get("container") || o.Follow && v.Get("follow") == "" {
			t.Errorf("%q was read as %+v", query, o)
		}
	})
}
