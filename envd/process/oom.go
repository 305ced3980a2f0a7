package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// oomDistance is how much sooner than envd the kernel should end what runs in the sandbox.
const oomDistance = 100

// oomAdjustment is envd's own score plus the distance. Raising a score needs no privilege; envd never lowers its own,
// which a child forked before the change would inherit.
var oomAdjustment = sync.OnceValue(func() string {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return "0"
	}
	score, _ := strconv.Atoi(strings.TrimSpace(string(own)))
	return strconv.Itoa(min(score+oomDistance, 1000))
})

// raiseOOMScore has the kernel end a new process sooner than envd. A sandbox may forbid it; then the kernel's own choice
// stands.
func raiseOOMScore(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(oomAdjustment()), 0)
}
