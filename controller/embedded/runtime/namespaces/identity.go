package namespaces

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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

// open returns a descriptor of the process if it is still the one that was named.
func (i identity) open() (fd int, ok bool) {
	if i.PID <= 1 || i.Start == "" || i.Boot != bootID() {
		return -1, false
	}
	fd, err := unix.PidfdOpen(i.PID, 0)
	if err != nil {
		return -1, false // gone
	}
	// The descriptor holds on to whoever has the id now; only then is it safe to compare.
	if startTime(i.PID) != i.Start {
		unix.Close(fd)
		return -1, false
	}
	return fd, true
}

// kill ends the process if it is still the one that was named.
func (i identity) kill() {
	if fd, ok := i.open(); ok {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
}

// endLimit bounds how long the kernel may take to end a killed sandbox.
const endLimit = 10 * time.Second

// End ends the sandbox that is on record in a Pod's directory, whether or not it answers, and waits for it.
func End(dir string) error {
	i, err := load(filepath.Join(dir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fd, ok := i.open()
	if !ok {
		return nil
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // what it does not end is told below
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endLimit.Milliseconds()))
	if err == nil && n == 0 {
		err = fmt.Errorf("the kernel did not end process %d within %s", i.PID, endLimit)
	}
	return err
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
