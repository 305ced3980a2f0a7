//go:build race

package command

// Under the race detector output is slow and memory holds its shadow too: completeness is all that is tested there.
const (
	outputSize = 4 << 20
	peakLimit  = 1 << 40
)
