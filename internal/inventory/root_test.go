package inventory

import (
	"bytes"
	"testing"

	"github.com/rshub/rshub/feed"
)

// FuzzHead reads any bytes as a head.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"next":18446744073709551615,"roots":null}`))
	root := Root{Begin: 3, Cursor: feed.Cursor{Position: 9, Micros: 8}, Page: 5, Height: 2, Upto: 6, Pages: 2, Bytes: 99, Made: 4}
	h := Head{Next: 9, Garbage: 4, Swept: 2, Complete: root.Cursor, Why: "it was \"lost\"",
		Roots: []Kept{{Root: root, Pins: []Pin{{"me", 7}}, Listed: 3, Lost: 2}, {Root: Root{Upto: 8}}}}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHead(b)
		if err != nil {
			return
		}
		again, err := decodeHead(h.encode())
		if err != nil || !bytes.Equal(again.encode(), h.encode()) {
			t.Fatalf("%s became %s, %v", h.encode(), again.encode(), err)
		}
		h.neededRoots(5)
		h.IsComplete(h.Newest().Cursor)
	})
}
