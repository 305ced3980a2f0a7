package claim

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"time"
)

// idDigits keep the order of the numbers they encode, and fit host names and label values.
const idDigits = "0123456789abcdefghijklmnopqrstuv"

var idEncoding = base32.NewEncoding(idDigits).WithPadding(base32.NoPadding)

// newID returns a sandbox id: 26 characters of [a-z0-9], the first a letter. Nine digits of milliseconds make it sort
// by creation time (for the next thousand years); sixteen are 80 random bits.
func newID(now time.Time) string {
	id := make([]byte, 10, 26)
	id[0] = 'i'
	ms := now.UnixMilli()
	for i := 9; i > 0; i-- {
		id[i] = idDigits[ms&31]
		ms >>= 5
	}
	var random [10]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
	return string(idEncoding.AppendEncode(id, random[:]))
}

// newToken returns 32 random bytes in hexadecimal.
func newToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
