//go:build linux

package main

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A collection is a number of resources similar to Python's PEPs: two digests, a length and a type;
// a change has 270 bytes as JSON.
type collection int

var collectionBegan = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// change returns a change of the i-th resource. Version 0 created it.
func (n collection) change(i, version int) resourcesync.Change {
	body := fmt.Appendf(nil, "resource %d, version %d", i, version)
	length := int64(1000 + i*7919%50_000)
	c := resourcesync.Change{
		Loc:     fmt.Sprintf("https://raw.example.org/collection/documents/main/item-%07d.txt", i),
		Change:  resourcesync.Updated,
		Lastmod: collectionBegan.Add(time.Duration((i*7919+version)%200_000_000) * time.Second),
		Hash:    fmt.Sprintf("md5:%x sha-256:%x", md5.Sum(body), sha256.Sum256(body)),
		Length:  &length,
		Type:    "text/plain",
	}
	if version == 0 {
		c.Change = resourcesync.Created
	}
	return c
}

// created returns the batch-th run of at most size changes that create the collection, in an
// order that differs from the order of the locs.
func (n collection) created(batch, size int) []resourcesync.Change {
	changes := make([]resourcesync.Change, 0, size)
	for i := batch * size; i < min((batch+1)*size, int(n)); i++ {
		changes = append(changes, n.change(i*7_368_787%int(n), 0))
	}
	return changes
}

// updated returns changes of resources at random places.
func (n collection) updated(count int) []resourcesync.Change {
	changes := make([]resourcesync.Change, count)
	for i := range changes {
		changes[i] = n.change(rand.IntN(int(n)), 1+rand.IntN(1<<30))
	}
	return changes
}

// A content is the published changes. Their number is a multiple of every batch size, so that a
// batch is a slice.
type content []resourcesync.Change

// newContent returns the history of a small collection.
func newContent() content {
	const size, resources = 20_000, collection(700)
	c := make(content, size)
	for i := range c {
		c[i] = resources.change(i%int(resources), i/int(resources))
	}
	return c
}

// batch returns the i-th run of n changes; behind the last is the first again.
func (c content) batch(i, n int) []resourcesync.Change {
	at := i % (len(c) / n) * n
	return c[at : at+n]
}

// each returns what encode makes of all different batches of n.
func (c content) each(n int, encode func([]resourcesync.Change) []byte) [][]byte {
	out := make([][]byte, len(c)/n)
	for i := range out {
		out[i] = encode(c.batch(i, n))
	}
	return out
}

// blocks returns changes as the memory stores them.
func blocks(changes []resourcesync.Change) (out []byte) {
	for _, block := range changelog.CutBlocks(changes, 1, 10_000) {
		out = append(out, block.Block...)
	}
	return out
}

// ndjson returns changes as lines of JSON.
func ndjson(changes []resourcesync.Change) (lines []byte) {
	for i := range changes {
		lines = append(lines, '{')
		lines = resourcesync.AppendJSONMembers(lines, &changes[i])
		lines = append(lines, "}\n"...)
	}
	return lines
}

// inJSON returns changes as one JSON object.
func inJSON(changes []resourcesync.Change) []byte {
	list := bytes.ReplaceAll(bytes.TrimSpace(ndjson(changes)), []byte("\n"), []byte(","))
	return append(append([]byte(`{"changes":[`), list...), "]}"...)
}

// delivered returns changes as a delivered message.
func delivered(changes []resourcesync.Change) *feed.Batch {
	at := feed.Cursor{Position: 1_000_000, Micros: time.Now().UnixMicro()}
	after := feed.Cursor{Position: at.Position - uint64(len(changes)), Micros: at.Micros - 50_000}
	return feed.NewBatch(benchSet, after, at, changes)
}

// A mark is in the loc of a published change: "@@", the message's number in 8
// hex digits, and the time it was published in 16 (ns on this process's
// monotonic clock). It is no more than a part of a URL, so it passes through
// JSON as it is.
const markLen = 2 + 8 + 16

// Several publishers feed a saturated fan-out. Each numbers its own messages,
// with its own number in the highest digit: their order among each other is the
// server's to choose.
const (
	feeds     = 4
	feedShift = 28
)

var markStart = []byte("@@")

var clockBase = time.Now()

// now returns the monotonic time since the process started in nanoseconds.
func now() int64 { return int64(time.Since(clockBase)) }

// stamp overwrites the mark in p.
func stamp(p []byte, seq uint32, at int64) {
	i := bytes.Index(p, markStart)
	copy(p[i+2:], fmt.Appendf(nil, "%08x%016x", seq, at))
}

// readMark returns the first mark in p. rest follows it.
func readMark(p []byte) (seq uint32, at int64, rest []byte, ok bool) {
	i := bytes.Index(p, markStart)
	if i < 0 || len(p) < i+markLen {
		return 0, 0, nil, false
	}
	s, err1 := strconv.ParseUint(string(p[i+2:i+10]), 16, 32)
	t, err2 := strconv.ParseUint(string(p[i+10:i+markLen]), 16, 64)
	return uint32(s), int64(t), p[i+markLen:], err1 == nil && err2 == nil
}

// marked returns a change with a mark, as it is published (a line of NDJSON)
// and as rshub delivers it: a message of about size bytes.
func marked(size int) (line, message []byte) {
	c := []resourcesync.Change{{Change: resourcesync.Updated, Loc: "https://bench.example.org/@@" + strings.Repeat("0", markLen-2)}}
	if n := size - len(delivered(c).JSON()); n > 0 {
		c[0].Loc += strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", n/36+1)[:n]
	}
	return ndjson(c), delivered(c).JSON()
}
