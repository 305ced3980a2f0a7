package output

import (
	"cmp"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
)

// SortBy sorts rows by a key, stably: numbers by value, everything else as text, and
// rows without the value last in both directions.
func SortBy[T any](rows []T, key func(T) any, descending bool) {
	slices.SortStableFunc(rows, func(a, b T) int {
		x, y := key(a), key(b)
		if Empty(x) || Empty(y) {
			return cmp.Compare(boolRank(Empty(x)), boolRank(Empty(y)))
		}
		order := compare(x, y)
		if descending {
			return -order
		}
		return order
	})
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compare(x, y any) int {
	a, okA := number(x)
	b, okB := number(y)
	switch {
	case okA && okB:
		return a.Cmp(b)
	case okA:
		return -1
	case okB:
		return 1
	}
	return strings.Compare(Plain(x), Plain(y))
}

func number(v any) (*big.Float, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > 64 {
		return nil, false
	}
	f, _, err := big.ParseFloat(n.String(), 10, 256, big.ToNearestEven)
	return f, err == nil
}
