package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestCheckSet(t *testing.T) {
	for _, tt := range []struct {
		name string
		ok   bool
	}{
		{"demo", true},
		{"a", true},
		{"0", true},
		{"lib.example.org_x-y", true},
		{"a..b", true},
		{strings.Repeat("a", 63), true},
		{"", false},
		{strings.Repeat("a", 64), false},
		{strings.Repeat("a", 1<<20), false},
		{".demo", false},
		{"-demo", false},
		{"_demo", false},
		{"..", false},
		{"Demo", false},
		{"a/b", false},
		{"a b", false},
		{"a*", false},
		{"ä", false},
		{"a\x00", false},
	} {
		t.Run(resourcesync.Shorten(tt.name), func(t *testing.T) {
			err := CheckSet(tt.name)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, resourcesync.ErrInvalid) {
				t.Fatalf("CheckSet(%.100q) = %v, want ok %t", tt.name, err, tt.ok)
			}
			if err != nil && (len(err.Error()) > 500 || !strings.Contains(err.Error(), "1 to 63 of a-z")) {
				t.Errorf("CheckSet(%.100q) = %v, want a short error with the rule", tt.name, err)
			}
		})
	}
}
