package changelog

import (
	"errors"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestCheckSet(t *testing.T) {
	for _, test := range []struct {
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
		t.Run(shorten(test.name), func(t *testing.T) {
			err := CheckSet(test.name)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, resourcesync.ErrInvalid) {
				t.Fatalf("CheckSet() = %v", err)
			}
			if err != nil && (len(err.Error()) > 500 || !strings.Contains(err.Error(), "1 to 63 of a-z")) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// An estimate need not be right, but it grows with everything that can grow.
func TestPublishSize(t *testing.T) {
	long := strings.Repeat("x", 1000)
	attrs := []resourcesync.Attr{{Value: long}}
	small := (&Publish{Changes: make([]resourcesync.Change, 1)}).Size()
	for name, c := range map[string]resourcesync.Change{
		"loc": {Loc: long}, "hash": {Hash: long}, "type": {Type: long}, "attributes": {Attrs: attrs},
		"links": {Links: []resourcesync.Link{{Href: long}}}, "attributes of links": {Links: []resourcesync.Link{{Attrs: attrs}}},
	} {
		if n := (&Publish{Changes: []resourcesync.Change{c}}).Size(); n < small+1000 {
			t.Errorf("with 1,000 bytes of %s it is %d, without %d", name, n, small)
		}
	}
	if n := (&Publish{Changes: make([]resourcesync.Change, 10)}).Size(); n != 10*small {
		t.Errorf("ten are %d, one is %d", n, small)
	}
}
