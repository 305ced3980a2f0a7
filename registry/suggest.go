package registry

import "strings"

// Suggest returns the name nearest to word, or "" when none is near: at most two
// edits away (one for words of up to four letters), swapped neighbours counting
// as one, case ignored; or the only name that begins with word.
func Suggest(word string, names []string) string {
	// Longer words than any name are no typing mistake, and the distance costs their product.
	if word == "" || len(word) > 64 {
		return ""
	}
	word = strings.ToLower(word)
	limit := 2
	if len(word) <= 4 {
		limit = 1
	}
	best, bestDistance := "", limit+1
	prefix, prefixes := "", 0
	for _, name := range names {
		lower := strings.ToLower(name)
		if d := distance(word, lower); d < bestDistance {
			best, bestDistance = name, d
		}
		if len(word) >= 2 && strings.HasPrefix(lower, word) {
			prefix = name
			prefixes++
		}
	}
	if best == "" && prefixes == 1 {
		return prefix
	}
	return best
}

// distance is the optimal string alignment distance in runes.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	prev2, prev, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(y)]
}
