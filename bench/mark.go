//go:build linux

package main

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A mark is in the loc of a published change: "@@", the message's number in 8
// hex digits, and the time it was published in 16 (ns on this process's
// monotonic clock). It is no more than a part of a URL, so it passes through
// JSON and XML as it is.
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

// now is nanoseconds on the monotonic clock since the process began.
func now() int64 { return int64(time.Since(clockBase)) }

// stamp writes a mark over the one in p.
func stamp(p []byte, seq uint32, at int64) {
	i := bytes.Index(p, markStart)
	putHex(p[i+2:i+10], uint64(seq))
	putHex(p[i+10:i+markLen], uint64(at))
}

// readMark finds the first mark in p. rest is what follows it.
func readMark(p []byte) (seq uint32, at int64, rest []byte, ok bool) {
	i := bytes.Index(p, markStart)
	if i < 0 || len(p) < i+markLen {
		return 0, 0, nil, false
	}
	s, err1 := strconv.ParseUint(string(p[i+2:i+10]), 16, 32)
	t, err2 := strconv.ParseUint(string(p[i+10:i+markLen]), 16, 64)
	return uint32(s), int64(t), p[i+markLen:], err1 == nil && err2 == nil
}

func putHex(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

// marked returns a change with a mark, as it is published (a line of NDJSON)
// and as rshub delivers it: a message of about size bytes.
func marked(size int) (line, delivered []byte) { return markedAt("https://bench.example.org/", size) }

// markedAt is marked with a loc that has a prefix.
func markedAt(prefix string, size int) (line, delivered []byte) {
	c := resourcesync.Change{Change: resourcesync.Updated, Loc: prefix + "@@" + strings.Repeat("0", markLen-2)}
	at := feed.Cursor{Position: 1000, Micros: time.Now().UnixMicro()}
	deliver := func() []byte {
		a := changelog.Appended{After: feed.Cursor{Position: at.Position - 1, Micros: at.Micros - 50_000}, Cursor: at, Count: 1}
		return feed.NewBatch(benchSet, a.After, a.Cursor, []resourcesync.Change{c}).JSON()
	}
	if n := size - len(deliver()); n > 0 {
		c.Loc += strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", n/36+1)[:n]
	}
	return ndjson([]resourcesync.Change{c}), deliver()
}
