// Package nearest finds the word of a list that a user probably meant, for messages such as
// "unknown member lastmodd; did you mean lastmod?".
//
// It suggests nothing if no word is similar.
package nearest

import "strings"

// Of returns the most similar of words, or "" if none is similar. In a word of three letters, one
// letter may be wrong, missing, added or swapped with its neighbor; in longer words, a third of the
// letters. Case is ignored.
func Of(word string, words []string) string {
	if len(word) > 100 {
		return ""
	}
	word = strings.ToLower(word)
	best, least := "", max(len(word), 3)/3+1
	for _, w := range words {
		if d := distance(word, strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns how many letters must be inserted, removed, replaced or swapped with their
// neighbor to turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
