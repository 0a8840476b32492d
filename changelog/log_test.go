package changelog

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// TestPublishSize checks that the estimate grows with everything that can grow.
func TestPublishSize(t *testing.T) {
	long := strings.Repeat("x", 1000)
	attrs := []resourcesync.Attr{{Value: long}}
	small := (&Publish{Changes: make([]resourcesync.Change, 1)}).Size()
	for name, c := range map[string]resourcesync.Change{
		"loc": {Loc: long}, "hash": {Hash: long}, "type": {Type: long}, "attributes": {Attrs: attrs},
		"links": {Links: []resourcesync.Link{{Href: long}}}, "attributes of links": {Links: []resourcesync.Link{{Attrs: attrs}}},
	} {
		if n := (&Publish{Changes: []resourcesync.Change{c}}).Size(); n < small+1000 {
			t.Errorf("Size() with 1,000 bytes of %s = %d, without %d, want at least 1,000 more", name, n, small)
		}
	}
	if n := (&Publish{Changes: make([]resourcesync.Change, 10)}).Size(); n != 10*small {
		t.Errorf("Size() of ten changes = %d, of one %d, want ten times as much", n, small)
	}
}
