//go:build race

package command

// peakLimit allows for the shadow memory of the race detector.
const peakLimit = 48 << 20 * 10
