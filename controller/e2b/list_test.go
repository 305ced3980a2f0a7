package e2b

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// encodeLikeSDK is what the published SDKs do to a metadata filter.
func encodeLikeSDK(filter map[string]string) string {
	component := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	form := url.Values{}
	for k, v := range filter {
		form.Set(component(k), component(v))
	}
	return url.QueryEscape(form.Encode())
}

func ids(t *testing.T, a answer) []string {
	t.Helper()
	var list []listedBody
	a.decode(t, &list)
	out := []string{}
	for _, sb := range list {
		out = append(out, sb.SandboxID)
	}
	return out
}

func TestListFilters(t *testing.T) {
	f := newFixture(t, nil)
	f.create(aliceKey, `{"templateID":"default","metadata":{"user":"b c&d=e+f%","run":"1"}}`) // i001
	f.create(aliceKey, `{"templateID":"patient","metadata":{"run":"1"}}`)                     // i002
	f.create(aliceKey, `{"templateID":"local::default-2c4gi","metadata":{"ключ":"値"}}`)       // i003
	f.create(bobKey, `{"templateID":"blue","metadata":{"run":"1"}}`)                          // i004
	f.create(aliceKey, `{"templateID":"default"}`)                                            // i005
	second := f.claims.now.Add(-3 * time.Second).Format(time.RFC3339)

	for _, tc := range []struct{ query, want string }{
		{"", "i005 i003 i002 i001"},
		{"order=asc", "i001 i002 i003 i005"},
		{"state=running", "i005 i003 i002 i001"},
		{"state=running,paused", "i005 i003 i002 i001"},
		{"state=paused", ""},
		{"metadata=" + encodeLikeSDK(map[string]string{"user": "b c&d=e+f%", "run": "1"}), "i001"},
		{"metadata=" + encodeLikeSDK(map[string]string{"ключ": "値"}), "i003"},
		{"metadata=run%3D1", "i002 i001"},
		{"metadata=run%3D1%26user%3Dnobody", ""},
		{"metadata=run%3D2", ""},
		{"template=default", "i005 i001"},
		{"template=base", "i005 i001"},
		{"template=local::patient", "i002"},
		{"template=mars::patient", ""},
		{"template=default-2c4gi", "i003"},
		{"template=unheard", ""},
		{"template=blue", ""},
		{"startedAfter=" + url.QueryEscape(second), "i005 i003 i002"},
		{"startedAfter=2026-05-01T00:00:00%2B00:00&order=asc", "i001 i002 i003 i005"},
		{"startedAfter=2126-05-01T00:00:00Z", ""},
		{"state=", "i005 i003 i002 i001"},
		{"state=paused&state=running", "i005 i003 i002 i001"},
		{"template=my_tpl", ""},
		{"template=team/tpl", ""},
		{"template=my_tpl:v1", "error"},
		{"limit=5&limit=1", "error"},
		{"metadata=run%3D1&metadata=run%3D1", "error"},
		{"template=default&template=patient", "error"},
		{"state=idle", "error"},
		{"order=up", "error"},
		{"limit=0", "error"},
		{"limit=101", "error"},
		{"limit=x", "error"},
		{"metadata=run", "error"},
		{"metadata=%2525zz%3D1", "error"},
		{"metadata=a%3D1%26a%3D2", "error"},
		{"template=default:v1", "error"},
		{"startedAfter=yesterday", "error"},
		{"nextToken=garbage!", "error"},
		{"statee=running", "error"},
		{"%zz", "error"},
	} {
		a := f.call(aliceKey, "GET", "/v2/sandboxes?"+tc.query, "")
		if tc.want == "error" {
			if a.Status != 400 {
				t.Errorf("%s: %d %s; want 400", tc.query, a.Status, a.Body)
			}
			continue
		}
		if got := strings.Join(ids(t, a), " "); got != tc.want {
			t.Errorf("%s: %q; want %q", tc.query, got, tc.want)
		}
		if a.Header.Get("X-Next-Token") != "" {
			t.Errorf("%s: a single page has a next token", tc.query)
		}
	}
	if got := strings.Join(ids(t, f.call(aliceKey, "GET", "/sandboxes?metadata=run%3D1", "")), " "); got != "i002 i001" {
		t.Errorf("v1 list: %q", got)
	}
	if a := f.call(aliceKey, "GET", "/sandboxes?limit=1", ""); a.Status != 400 {
		t.Errorf("v1 list with a parameter it does not have: %d", a.Status)
	}
}

// TestListPages walks the pages while sandboxes come and go between them: nothing that stays is missed or seen twice.
func TestListPages(t *testing.T) {
	f := newFixture(t, nil)
	for range 7 {
		f.create(aliceKey, `{"templateID":"default"}`)
	}
	for _, order := range []string{"asc", "desc"} {
		stays := slices.Sorted(maps.Keys(f.claims.live))
		var seen []string
		token := ""
		for page := 0; ; page++ {
			a := f.call(aliceKey, "GET", fmt.Sprintf("/v2/sandboxes?limit=2&order=%s&nextToken=%s", order, token), "")
			got := ids(t, a)
			if a.Header.Get("X-Total-Running") != fmt.Sprint(len(f.claims.live)) {
				t.Errorf("X-Total-Running %s of %d", a.Header.Get("X-Total-Running"), len(f.claims.live))
			}
			seen = append(seen, got...)
			if token = a.Header.Get("X-Next-Token"); token == "" {
				break
			}
			if a := f.call(aliceKey, "GET", "/v2/sandboxes?nextToken="+token+"&order="+map[string]string{"asc": "desc", "desc": "asc"}[order], ""); a.Status != 400 {
				t.Errorf("a token of another order: %d", a.Status)
			}
			if page == 0 { // the last entry of the page goes: the next page begins after it all the same
				f.call(aliceKey, "DELETE", "/sandboxes/"+got[1], "")
			}
		}
		slices.Sort(seen)
		if !slices.Equal(seen, stays) {
			t.Errorf("%s: saw %v; want %v", order, seen, stays)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(cursor{At: time.Unix(1, 5), ID: "i1"}.String())
	f.Add(cursor{At: time.Unix(1, 5), ID: "i1", Ascending: true}.String())
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("2026-01-01T00:00:00Z__a__b__asc")))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("0000-01-01T00:00:00+23:59__a")))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("9999-12-31T23:59:59-01:00__a")))
	f.Fuzz(func(t *testing.T, token string) {
		for _, ascending := range []bool{true, false} {
			c, err := parseCursor(token, ascending)
			if err != nil {
				continue
			}
			again, err := parseCursor(c.String(), ascending)
			if err != nil || !again.At.Equal(c.At) || again.ID != c.ID || again.Ascending != ascending {
				t.Fatalf("%q: %+v and %+v, %v", token, c, again, err)
			}
		}
	})
}

func FuzzMetadataFilter(f *testing.F) {
	f.Add("a", "b c")
	f.Add("%", "&=+%25")
	f.Add("ключ", "")
	f.Fuzz(func(t *testing.T, key, value string) {
		_, _ = parseMetadataFilter(value) // arbitrary text must not panic
		if key == "" {
			return
		}
		query, err := url.QueryUnescape(encodeLikeSDK(map[string]string{key: value}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMetadataFilter(query)
		if err != nil || len(got) != 1 || got[key] != value {
			t.Fatalf("%q=%q came back as %q, %v", key, value, got, err)
		}
	})
}

func FuzzRouter(f *testing.F) {
	router := New(Options{}).router
	f.Add("GET", "/sandboxes/a%2Fb/logs")
	f.Add("DELETE", "//")
	f.Add("GET", "/%zz")
	f.Fuzz(func(t *testing.T, method, path string) {
		serve, params, err := router.find(method, path)
		if (serve == nil) == (err == nil) {
			t.Fatalf("%s %s: handler %v, error %v", method, path, serve != nil, err)
		}
		for name, value := range params {
			if value == "" {
				t.Fatalf("%s %s: parameter %s is empty", method, path, name)
			}
		}
	})
}
