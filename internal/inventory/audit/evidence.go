package audit

import (
	"maps"
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// strongest lists hash algorithms, the strongest first.
var strongest = []string{"sha-512", "sha-384", "sha-256", "sha-224", "sha-1", "md5"}

// SameContent reports whether two changes describe the same content. It uses the strongest evidence
// that both have: a hash by the same algorithm, otherwise lastmod and length if both have them. If
// they have no evidence in common, known is false.
func SameContent(a, b *resourcesync.Change) (same, known bool) {
	hashesA, hashesB := hashes(a), hashes(b)
	for _, algorithm := range slices.Concat(strongest, slices.Sorted(maps.Keys(hashesA))) {
		hashA, okA := hashesA[algorithm]
		if hashB, okB := hashesB[algorithm]; okA && okB {
			return hashA == hashB, true
		}
	}
	same = true
	if !a.Lastmod.IsZero() && !b.Lastmod.IsZero() {
		known, same = true, a.Lastmod.Equal(b.Lastmod)
	}
	if a.Length != nil && b.Length != nil {
		known, same = true, same && *a.Length == *b.Length
	}
	return same && known, known
}

// hashes returns the hex digits by algorithm, both in lower case.
func hashes(c *resourcesync.Change) map[string]string {
	all := make(map[string]string, 2)
	for h := range strings.FieldsSeq(strings.ToLower(c.Hash)) {
		if algorithm, hex, ok := strings.Cut(h, ":"); ok {
			all[algorithm] = hex
		}
	}
	return all
}
