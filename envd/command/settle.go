package command

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// settle prepares this process: its umask, its place as parent of orphans, and its secrecy towards the sandbox's code.
func settle() error {
	syscall.Umask(0o022)
	// One envd idles in every sandbox; it collects earlier than a busy server would.
	debug.SetGCPercent(50)
	if os.Getpid() != 1 { // who is that anyway, and under gVisor nobody else can be
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("cannot become the parent of orphans: %w", err)
		}
	}
	forgetEnvironment()
	// Code that runs as the same user must not read envd's memory: the tokens are there.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot hide envd's memory: %w", err)
	}
	return nil
}

// forgetEnvironment wipes the variables that the kernel keeps showing in /proc/<pid>/environ after they were unset.
// Where it fails, the process being undumpable is what hides them.
func forgetEnvironment() {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const envStart, envEnd = 50 - 3, 51 - 3 // fields 50 and 51 of proc(5); the slice begins at field 3
	if len(fields) <= envEnd {
		return
	}
	start, err1 := strconv.ParseInt(string(fields[envStart]), 10, 64)
	end, err2 := strconv.ParseInt(string(fields[envEnd]), 10, 64)
	if err1 != nil || err2 != nil || start <= 0 || end <= start {
		return
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer memory.Close()
	_, _ = memory.WriteAt(make([]byte, end-start), start)
}
