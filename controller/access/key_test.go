package access

import (
	"strings"
	"testing"
)

func TestHashKey(t *testing.T) {
	hex := strings.Repeat("0a", 32)
	a, ok := hashKey("agbx_" + hex)
	if !ok {
		t.Fatal("agbx_ key refused")
	}
	if b, ok := hashKey("e2b_" + hex); !ok || b != a {
		t.Errorf("the same key under e2b_: %q %v, want %q", b, ok, a)
	}
	for _, bad := range []string{
		"", "agbx_", hex, "agbx_" + hex[:63], "agbx_" + hex + "0", "agbx_" + strings.ToUpper(hex), "AGBX_" + hex,
		"e2b_agbx_" + hex, " agbx_" + hex, "agbx_" + hex[:63] + "\x00", "agbx_" + hex[:62] + "é",
	} {
		if _, ok := hashKey(bad); ok {
			t.Errorf("%q reads like a key", bad)
		}
	}
	if k := newKey(); k == newKey() || len(k) != len(keyPrefix)+keyHexLen {
		t.Errorf("minted %q twice, or of the wrong length", k)
	}
}

func FuzzHashKey(f *testing.F) {
	f.Add("agbx_" + strings.Repeat("0", 64))
	f.Add("e2b_" + strings.Repeat("f", 64))
	f.Add("agbx_é")
	f.Fuzz(func(t *testing.T, in string) {
		hash, ok := hashKey(in)
		if ok != (hash != "") {
			t.Fatalf("%q: %q %v", in, hash, ok)
		}
		if ok && !isLowerHex(hash, 64) {
			t.Fatalf("%q: %q is no SHA-256", in, hash)
		}
	})
}

func FuzzNamespaceName(f *testing.F) {
	f.Add("red", "alice")
	f.Add("", "")
	f.Add("Ünïcode", strings.Repeat("x", 200))
	f.Add("a-b", "c@example.com")
	f.Fuzz(func(t *testing.T, team, user string) {
		plain := namespaceName(team, user)
		for _, name := range []string{plain, distinctName(plain, team, user)} {
			if len(name) > maxNamespace || !strings.HasPrefix(name, "t") || strings.HasSuffix(name, "-") {
				t.Fatalf("%q is no namespace name", name)
			}
			for _, r := range name {
				if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
					t.Fatalf("%q is no namespace name", name)
				}
			}
		}
	})
}
