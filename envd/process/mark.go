package process

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"strings"

	"navix.sh/agentbox/envd/users"
)

// markName is the environment variable that names the command which a process belongs to. Programs hand their environment
// on to what they start, also to daemons, which have neither a parent nor a session in common with the command. Unlike a
// cgroup it needs no rights, and unlike a supervisor it costs nothing at the start.
const markName = "AGENTBOX_COMMAND"

// mark is what the processes of one command have in their environment. The zero value marks nothing.
type mark struct {
	entry string
	user  users.User
}

func newMark(user users.User) mark {
	return mark{entry: markName + "=" + rand.Text(), user: user}
}

// in returns env with the mark, and with no other.
func (m mark) in(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, markName+"=") })
	return append(env, m.entry)
}

// carriers finds the processes that carry the mark.
func (m mark) carriers(all []relation) map[int]bool {
	found := map[int]bool{}
	if m.entry == "" {
		return found
	}
	var hidden []int
	look := func(pid int) error {
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && carries(environ, m.entry) {
			found[pid] = true
		}
		return err
	}
	for _, r := range all {
		if err := look(r.pid); os.IsPermission(err) {
			hidden = append(hidden, r.pid)
		}
	}
	if len(hidden) == 0 {
		return found
	}
	// Root without the right to trace sees the environments of root; those of the command's user are the user's to see.
	_ = m.user.Act(func() error {
		for _, pid := range hidden {
			_ = look(pid)
		}
		return nil
	})
	return found
}

func carries(environ []byte, entry string) bool {
	for one := range bytes.SplitSeq(environ, []byte{0}) {
		if string(one) == entry {
			return true
		}
	}
	return false
}
