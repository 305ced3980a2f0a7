package namespaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// identity names a process beyond doubt: a process id alone is used again after a while.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`
}

func identify(pid int) identity {
	return identity{PID: pid, Start: startTime(pid), Boot: bootID()}
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// startTime returns when a process started, or "" when it does not exist.
func startTime(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses, which may contain anything.
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return ""
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// kill ends the process if it is still the one that was named.
func (i identity) kill() {
	if i.PID <= 1 || i.Start == "" || i.Boot != bootID() {
		return
	}
	fd, err := unix.PidfdOpen(i.PID, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	// The descriptor holds on to whoever has the id now; only then is it safe to compare.
	if startTime(i.PID) == i.Start {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func (i identity) save(path string) error {
	data, err := json.Marshal(i)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func load(path string) (identity, error) {
	var i identity
	data, err := os.ReadFile(path)
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return i, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}
