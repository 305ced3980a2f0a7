//go:build !race

package command

// peakLimit is what envd may need at most, whatever a command prints.
const peakLimit = 48 << 20
