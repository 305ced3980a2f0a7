package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// A key reads prefix + 64 lower-case hex digits (32 random bytes). The E2B SDKs before 2.51 refuse every prefix but
// their own before they send anything, so the same key is also accepted under that one.
const (
	keyPrefix    = "agbx_"
	keyPrefixE2B = "e2b_"
	keyHexLen    = 64
	keyIDLen     = 16
)

// newKey mints a key. The plaintext is returned to its owner once and kept nowhere.
func newKey() string {
	var b [32]byte
	// crypto/rand.Read never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(b[:])
	return keyPrefix + hex.EncodeToString(b[:])
}

// hashKey returns the SHA-256, in hex, of a presented key in its agbx_ form. The bool is false for anything that does
// not read like a key.
func hashKey(presented string) (string, bool) {
	digits, ok := strings.CutPrefix(presented, keyPrefix)
	if !ok {
		digits, ok = strings.CutPrefix(presented, keyPrefixE2B)
	}
	if !ok || !isLowerHex(digits, keyHexLen) {
		return "", false
	}
	sum := sha256.Sum256([]byte(keyPrefix + digits))
	return hex.EncodeToString(sum[:]), true
}

// keyIDOf is the public name of a key: the beginning of its hash.
func keyIDOf(hash string) string { return hash[:keyIDLen] }

func isLowerHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
