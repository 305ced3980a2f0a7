//go:build !race

package command

// outputSize is what a command prints, and peakLimit what envd may need at most meanwhile.
const (
	outputSize = 64 << 20
	peakLimit  = 48 << 20
)
