// Exhaust takes message queues and pending signals until the kernel refuses more, says how many it got, and keeps them.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	queues := 0
	for ; openQueue("exhaust"+strconv.Itoa(queues)) == nil; queues++ {
	}
	fmt.Println(queues, pendingSignals())
	time.Sleep(time.Hour) // it ends with its sandbox
}

// openQueue makes a queue of the size that the kernel allows by default.
func openQueue(name string) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	attr := struct{ flags, maxMessages, messageSize, current, _, _, _, _ int64 }{maxMessages: 10, messageSize: 8192}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(path)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// pendingSignals queues a signal to this thread, which does not take it, as often as the kernel allows.
func pendingSignals() int {
	const realTime = 40
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = 1 << (realTime - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	info := [128]byte{0: realTime}
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	n := 0
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), realTime, uintptr(unsafe.Pointer(&info)), 0, 0)
		if errno != 0 {
			return n
		}
		n++
	}
}
