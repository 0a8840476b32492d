package mirror

import (
	"crypto/md5"
	"fmt"
	"testing"
)

// A source that changes over to another hash says nothing of the old one: a content of the same
// length is another one.
func TestOtherHash(t *testing.T) {
	b := newBench(t)
	n := int64(3)
	b.set("/a", "old")
	e := b.entry("/a", "old")
	e.Change.Length = &n
	b.apply(e)
	b.set("/a", "new")
	e = b.entry("/a", "new")
	e.Change.Length, e.Change.Hash = &n, fmt.Sprintf("md5:%x", md5.Sum([]byte("new")))
	b.apply(e)
	b.has("a", "new")
}
