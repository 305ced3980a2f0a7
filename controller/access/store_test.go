package access

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testClient is an API server in memory. The native API's tests run the same store on the embedded one.
func testClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetUID(uuid.NewUUID())
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
}

// startStore runs a store until the test ends.
func startStore(t *testing.T, c client.WithWatch, now func() time.Time) *Store {
	t.Helper()
	s, err := NewStore(Options{Client: c, Logger: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(t.Context(), newKey()); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("before Start: %v, want ErrUnavailable", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Start(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if err := s.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits for a condition that another goroutine's event makes true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestKeyLife(t *testing.T) {
	c := testClient(t)
	s := startStore(t, c, nil)
	k, plain, err := s.Issue(t.Context(), Spec{Role: RoleTenant, Agent: true, Team: "Red", User: "alice.example.com", Description: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	want := Caller{KeyID: k.ID, Role: RoleTenant, Agent: true, Team: "Red", User: "alice.example.com", Namespace: "t-red-alice-example-com"}
	for _, presented := range []string{plain, strings.Replace(plain, "agbx_", "e2b_", 1)} {
		got, err := s.Authenticate(t.Context(), presented)
		if err != nil || got != want {
			t.Fatalf("Authenticate: %+v, %v; want %+v", got, err, want)
		}
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "agentbox-apikey-" + k.ID}, &secret); err != nil {
		t.Fatal(err)
	}
	for key, v := range secret.Data {
		if strings.Contains(string(v), strings.TrimPrefix(plain, keyPrefix)) {
			t.Errorf("data.%s of the Secret holds the key itself", key)
		}
	}
	var ns corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: want.Namespace}, &ns); err != nil {
		t.Errorf("the tenant's namespace: %v", err)
	}

	if err := s.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch to tell of the deletion", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return !s.gone[secret.UID].IsZero()
	})
	s.put(&secret) // what is late about it does not bring it back, before the watch tells or after
	if _, err := s.Authenticate(t.Context(), plain); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("revoked key: %v", err)
	}
	if err := s.Revoke(t.Context(), k.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestDeletedKeysAreNotRememberedForEver(t *testing.T) {
	now := time.Now()
	s, err := NewStore(Options{Client: testClient(t), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	s.gone = map[types.UID]time.Time{"long ago": now.Add(-time.Hour), "just now": now, "not told": {}}
	s.forgetGone()
	if _, old := s.gone["long ago"]; old || len(s.gone) != 2 {
		t.Errorf("kept: %v", s.gone)
	}
}

func TestRevokedElsewhere(t *testing.T) {
	c := testClient(t)
	here, there := startStore(t, c, nil), startStore(t, c, nil)
	k, plain, err := here.Issue(t.Context(), Spec{Role: RoleTenant, Team: "red", User: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other replica learns of the key", func() bool {
		_, err := there.Authenticate(t.Context(), plain)
		return err == nil
	})
	if err := here.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other replica learns of the revocation", func() bool {
		_, err := there.Authenticate(t.Context(), plain)
		return errors.Is(err, ErrUnauthenticated)
	})
}

func TestExpiry(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now := at
	s := startStore(t, testClient(t), func() time.Time { return now })
	_, plain, err := s.Issue(t.Context(), Spec{Role: RoleTenant, Team: "red", User: "alice", ExpiresAt: at.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	now = at.Add(time.Hour - time.Second)
	if _, err := s.Authenticate(t.Context(), plain); err != nil {
		t.Errorf("a second before: %v", err)
	}
	now = at.Add(time.Hour)
	if _, err := s.Authenticate(t.Context(), plain); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("at the time: %v", err)
	}
}

func TestBrokenKeysAreRefused(t *testing.T) {
	hash, _ := hashKey(keyPrefix + strings.Repeat("1", 64))
	good := Key{ID: keyIDOf(hash), Role: RoleTenant, Team: "red", User: "alice", Namespace: "n", hash: hash}
	if _, err := keyFromSecret(good.toSecret("s")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ key, value string }{
		{dataRole, "root"}, {dataRole, ""}, {dataTeam, ""}, {dataUser, ""}, {dataExpiresAt, "tomorrow"},
		{dataRequireApproval, "yes"}, {dataToken, "short"}, {dataToken, strings.Repeat("2", 64)},
	} {
		s := good.toSecret("s")
		s.Data[tt.key] = []byte(tt.value)
		if _, err := keyFromSecret(s); err == nil {
			t.Errorf("%s=%q was accepted", tt.key, tt.value)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	s := startStore(t, testClient(t), nil)
	for name, spec := range map[string]Spec{
		"no role":         {Team: "a", User: "b"},
		"agent admin":     {Role: RoleAdmin, Agent: true, Team: "a", User: "b"},
		"no team":         {Role: RoleTenant, User: "b"},
		"no user":         {Role: RoleTenant, Team: "a"},
		"no label value":  {Role: RoleTenant, Team: "a", User: "b@example.com"},
		"control char":    {Role: RoleTenant, Team: "a", User: "b", Description: "a\x1b[2J"},
		"bad namespace":   {Role: RoleTenant, Team: "a", User: "b", Namespace: "A_b"},
		"past expiry":     {Role: RoleTenant, Team: "a", User: "b", ExpiresAt: time.Unix(1, 0)},
		"bad hash":        {Role: RoleTenant, Team: "a", User: "b", TokenHash: "AB"},
		"endless comment": {Role: RoleTenant, Team: "a", User: "b", Description: strings.Repeat("x", 2000)},
	} {
		if _, _, err := s.Issue(t.Context(), spec); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if n := len(s.List()); n != 0 {
		t.Errorf("%d keys were made by refused requests", n)
	}
}

func TestImport(t *testing.T) {
	s := startStore(t, testClient(t), nil)
	plain := newKey()
	hash, _ := hashKey(plain)
	spec := Spec{Role: RoleTenant, Team: "red", User: "alice", TokenHash: hash}
	if _, shown, err := s.Issue(t.Context(), spec); err != nil || shown != "" {
		t.Fatalf("import: %q, %v", shown, err)
	}
	if _, err := s.Authenticate(t.Context(), plain); err != nil {
		t.Errorf("imported key: %v", err)
	}
	if _, _, err := s.Issue(t.Context(), spec); !errors.Is(err, ErrExists) {
		t.Errorf("imported twice: %v", err)
	}
}

func TestTenantsNeverShareANamespace(t *testing.T) {
	taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t-green-g"}}
	c := testClient(t, taken)
	s := startStore(t, c, nil)
	seen := map[string]string{}
	for _, who := range [][2]string{{"a-b", "c"}, {"a", "b-c"}, {"A", "b_c"}, {"a", "b.c"}, {"green", "g"}, {strings.Repeat("x", 60), "yy"}, {strings.Repeat("x", 60), "zz"}} {
		for range 2 { // the second key of a tenant finds the first one's namespace
			k, _, err := s.Issue(t.Context(), Spec{Role: RoleTenant, Team: who[0], User: who[1]})
			if err != nil {
				t.Fatal(err)
			}
			me := who[0] + "/" + who[1]
			if other, ok := seen[k.Namespace]; ok && other != me {
				t.Errorf("%s and %s share %s", me, other, k.Namespace)
			}
			seen[k.Namespace] = me
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d namespaces for 7 tenants: %v", len(seen), seen)
	}
}

func TestBootstrap(t *testing.T) {
	c := testClient(t)
	s := startStore(t, c, nil)
	first, err := s.Bootstrap(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Bootstrap(t.Context(), first)
	if err != nil || again != first {
		t.Fatalf("second start: %q, %v", again, err)
	}
	_, own, err := s.Issue(t.Context(), Spec{Role: RoleAdmin, Team: "ops", User: "olga"})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := s.Bootstrap(t.Context(), "")
	if err != nil || lost == first {
		t.Fatalf("start without the saved key: %q, %v", lost, err)
	}
	if _, err := s.Authenticate(t.Context(), first); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("the lost bootstrap key still works: %v", err)
	}
	for _, key := range []string{lost, own} {
		if c, err := s.Authenticate(t.Context(), key); err != nil || c.Role != RoleAdmin {
			t.Errorf("admin key: %+v, %v", c, err)
		}
	}
}

func TestLastAdminStays(t *testing.T) {
	s := startStore(t, testClient(t), nil)
	if _, err := s.Bootstrap(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	only := s.List()[0]
	if err := s.Revoke(t.Context(), only.ID); !errors.Is(err, ErrLastAdmin) {
		t.Errorf("the last admin key: %v", err)
	}
}

func TestImpersonate(t *testing.T) {
	s := startStore(t, testClient(t), nil)
	k, _, err := s.Issue(t.Context(), Spec{Role: RoleTenant, Agent: true, Team: "red", User: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Impersonate(t.Context(), root, "red", "alice")
	want := Caller{KeyID: root.KeyID, Role: RoleTenant, Team: "red", User: "alice", Namespace: k.Namespace}
	if err != nil || got != want {
		t.Errorf("admin as alice: %+v, %v; want %+v", got, err, want)
	}
	if got, err := s.Impersonate(t.Context(), bob, "red", "alice"); err != nil || got != bob {
		t.Errorf("a tenant's headers are ignored: %+v, %v", got, err)
	}
	if _, err := s.Impersonate(t.Context(), root, "red", ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("half a name: %v", err)
	}
	if _, err := s.Impersonate(t.Context(), root, "red", "nobody"); !errors.Is(err, ErrInvalid) {
		t.Errorf("unknown user: %v", err)
	}
}

func TestLastUse(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := testClient(t)
	s := startStore(t, c, func() time.Time { return now })
	k, plain, err := s.Issue(t.Context(), Spec{Role: RoleTenant, Team: "red", User: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	if !k.LastUsedAt.IsZero() {
		t.Errorf("a new key was used at %s", k.LastUsedAt)
	}
	now = now.Add(time.Hour)
	if _, err := s.Authenticate(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Get(k.ID); !got.LastUsedAt.Equal(now) {
		t.Errorf("last use %s, want %s", got.LastUsedAt, now)
	}
	s.flushLastUsed(t.Context())
	fresh := startStore(t, c, nil)
	if got, _ := fresh.Get(k.ID); !got.LastUsedAt.Equal(now) {
		t.Errorf("after a restart: last use %s, want %s", got.LastUsedAt, now)
	}
}

func TestNamespaceOfOlderKeys(t *testing.T) {
	plain := newKey()
	hash, _ := hashKey(plain)
	old := Key{ID: keyIDOf(hash), Role: RoleTenant, Team: "red", User: "alice", hash: hash}.toSecret(v1alpha1.SystemNamespace)
	old.UID = types.UID("1")
	s := startStore(t, testClient(t, old), nil)
	got, err := s.Authenticate(t.Context(), plain)
	if err != nil || got.Namespace != "t-red-alice" {
		t.Errorf("%+v, %v", got, err)
	}
}
