package callback

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"github.com/rshub/rshub/feed"
)

// cacheBytes bounds the batches of a cache, with the text that each gets once.
const cacheBytes = 32 << 20

// A logKey names a log: that of a set, after it may have become another one so often.
type logKey struct {
	set      string
	restarts int
}

// A cache keeps batches of logs. The longest unused go first. Its methods may be called by
// any goroutine.
//
// The hub has a window of what was published, too, and the two share the batches. The
// hub's window finds only what begins with a batch, and a cut may begin within one.
type cache struct {
	mu    sync.Mutex
	bytes int
	used  list.List                  // of *cached, the last used first
	logs  map[logKey][]*list.Element // the same, ascending by where they begin
}

type cached struct {
	log   logKey
	batch *feed.Batch
	size  int
}

func batchOf(e *list.Element) *feed.Batch { return e.Value.(*cached).batch }

// beginsAt compares where a batch begins with a cursor.
func beginsAt(e *list.Element, c feed.Cursor) int {
	return cmp.Compare(batchOf(e).After.Position, c.Position)
}

// find returns a batch of a log that has the entry behind a cursor, and the index of that
// entry. It returns nil if there is none.
func (c *cache) find(log logKey, after feed.Cursor) (b *feed.Batch, first int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.logs[log]
	i, ok := slices.BinarySearchFunc(of, after, beginsAt)
	if !ok {
		i-- // the last that begins before the cursor
	}
	if i < 0 {
		return nil, 0
	}
	b = batchOf(of[i])
	if first = int(after.Position - b.After.Position); first >= len(b.Entries) {
		return nil, 0
	}
	if first == 0 && b.After != after || first > 0 && b.Entries[first-1].Cursor != after {
		return nil, 0 // the cursor is of another log
	}
	c.used.MoveToFront(of[i])
	return b, first
}

// add keeps a batch, in place of what begins where it does, and drops what is too much.
func (c *cache) add(log logKey, b *feed.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logs == nil {
		c.logs = map[logKey][]*list.Element{}
	}
	i, ok := slices.BinarySearchFunc(c.logs[log], b.After, beginsAt)
	if ok {
		c.dropLocked(c.logs[log][i])
	}
	x := &cached{log: log, batch: b, size: 2 * b.Size()}
	c.logs[log] = slices.Insert(c.logs[log], i, c.used.PushFront(x))
	c.bytes += x.size
	for c.bytes > cacheBytes && c.used.Len() > 1 {
		c.dropLocked(c.used.Back())
	}
}

// forget drops what there is of a log.
func (c *cache) forget(log logKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.logs[log] {
		c.bytes -= c.used.Remove(e).(*cached).size
	}
	delete(c.logs, log)
}

// dropLocked drops a batch. It needs mu held.
func (c *cache) dropLocked(e *list.Element) {
	x := c.used.Remove(e).(*cached)
	c.bytes -= x.size
	i, _ := slices.BinarySearchFunc(c.logs[x.log], x.batch.After, beginsAt) // no two begin at one position
	if c.logs[x.log] = slices.Delete(c.logs[x.log], i, i+1); len(c.logs[x.log]) == 0 {
		delete(c.logs, x.log)
	}
}
