package node

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// shortName is a name for things on the machine that is the same for every agent of a data directory.
func shortName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:4])
}

func groupName(dir string) string { return "agentbox-" + shortName(dir) }

// containerIDPrefix is what a container's id carries in a Pod's status.
const containerIDPrefix = "agentbox://"

func newContainerID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
