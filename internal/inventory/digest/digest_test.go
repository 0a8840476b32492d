package digest

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// FuzzVersion compares the shortcut for most hashes with the rule.
func FuzzVersion(f *testing.F) {
	for _, hash := range []string{"", "md5:00 sha-256:11", "sha-256:11 md5:00", "SHA-256:AB sha-256:cd", "sha-256:a\tsha-256:b", "sha-2560:00 md5:00", " sha-256:11", "md5:00\u2003sha-256:11"} {
		f.Add(hash)
	}
	f.Fuzz(func(t *testing.T, hash string) {
		want, none := "", len(strings.Fields(hash)) == 0
		for _, h := range strings.Fields(hash) {
			h = strings.ToLower(h)
			if strings.HasPrefix(h, "sha-256:") {
				want = h
				break
			}
			if want == "" || h < want {
				want = h
			}
		}
		if none {
			want = ";"
		}
		if got, weak := Version(&resourcesync.Change{Hash: hash}); got != want || weak != none {
			t.Fatalf("Version(%q) = %q, %t, want %q, %t", hash, got, weak, want, none)
		}
	})
}
