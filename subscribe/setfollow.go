package subscribe

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/zst"
)

// A setFollow is a set that a session follows. session.turn guards it, except for fields that say
// otherwise.
type setFollow struct {
	session  *session
	filter   *feed.Filter // nil if it selects everything
	begin    int64        // feed.State.Begin of the log; zero if the set did not exist yet
	named    bool         // whether the client named the set; otherwise it follows every set
	started  bool         // whether the session follows the set, or has followed it
	ended    bool         // whether the session no longer follows the set
	woken    bool         // whether there may be changes after the state with which it starts
	behind   bool         // whether it is in output.behind or output.delayed
	moved    bool         // whether it is in output.moved
	baseline *baselineRead

	// Guarded by topics.mu.
	topic *topic
	index int // in topic.follows

	ready bool // whether it is in session.ready; guarded by session.mu

	// Written only while session.mu is held, too, so others may read them then.
	cursor   feed.Cursor // cursor of the last batch, even if the filter omitted it
	lastSent feed.Cursor // cursor of the last message
}

func (f *setFollow) set() string { return f.topic.set }

// moveTo sets the cursors of f.
func (f *setFollow) moveTo(cursor, lastSent feed.Cursor) {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	f.cursor, f.lastSent = cursor, lastSent
}

// add makes c follow the set of f.
func (c *session) add(f *setFollow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows[f.set()], f.started = f, true
	c.maxFollows = max(c.maxFollows, len(c.follows))
}

// drop makes c no longer follow the set of f.
func (c *session) drop(f *setFollow) {
	c.mu.Lock()
	delete(c.follows, f.set())
	c.mu.Unlock()
	c.releaseFollows(1)
	f.ended = true
	c.server.topics.leave(f)
	if b := f.baseline; b != nil {
		b.cancel()
		if b.id != nil { // the client still waits for the answer
			c.appendAnswer(answer{ID: b.id, Unfollowed: f.set()})
		}
	}
}

// appendMessage appends a message. If id is not nil, it becomes the first member of the JSON object
// body. It is compressed if the client wants that.
func (c *session) appendMessage(id json.RawMessage, body []byte) {
	if id != nil {
		body = bytes.Join([][]byte{[]byte(`{"id":`), id, []byte(","), body[1:]}, nil)
	}
	if c.wire.format.Zstd {
		body = zst.Append(nil, body)
	}
	c.out = c.wire.append(c.out, body)
}

// appendAnswer appends a message that is neither a batch nor a part of a baseline.
func (c *session) appendAnswer(a answer) {
	body, _ := json.Marshal(a) // strings and numbers only
	c.appendMessage(nil, body)
}

// appendError appends the error of a set. cursor is the cursor to resume from, or zero. An error of
// the hub is logged.
func (c *session) appendError(id json.RawMessage, set string, err error, cursor feed.Cursor) {
	p := *problem.From(err)
	if p.Status == 500 {
		c.server.logFailure(set, err)
	}
	e := &answerError{Problem: &p}
	if !cursor.IsZero() {
		e.Cursor = cursor.String()
	}
	c.appendAnswer(answer{ID: id, Set: set, Error: e})
}

// appendStart appends the first message of a set: its starting cursor without changes.
func (c *session) appendStart(id json.RawMessage, b *feed.Batch) { c.appendMessage(id, b.JSON()) }

// appendBatch appends a batch of the set of f, and moves f's cursor. It returns the size of the message,
// which is zero if the filter omits all changes.
func (c *session) appendBatch(f *setFollow, b *feed.Batch) (size int) {
	begin := len(c.out)
	if f.filter == nil {
		c.out = c.wire.append(c.out, b.Encode(c.wire.format))
	} else {
		passed := f.filter.Apply(b)
		if len(passed.Entries) == 0 && !b.Diverged {
			f.moveTo(b.Cursor, f.lastSent)
			c.noteMoved(f)
			return 0
		}
		if !b.Diverged {
			passed.After = f.lastSent // passed is not shared
		}
		b = passed
		c.out = c.wire.append(c.out, b.Encode(c.wire.format))
	}
	f.moveTo(b.Cursor, b.Cursor)
	size = len(c.out) - begin
	c.tally.add(len(b.Entries), size)
	return size
}

// noteMoved notes that the filter moved f's cursor without a message.
func (c *session) noteMoved(f *setFollow) {
	if !f.moved {
		f.moved = true
		c.moved = append(c.moved, f)
	}
}

// maxCursors is the maximum number of cursors in a message.
const maxCursors = 4_000

// appendCursors reports the cursors that filters moved without messages since the last call.
func (c *session) appendCursors() {
	cursors := map[string]string{}
	for _, f := range c.moved {
		f.moved = false
		if f.ended || f.cursor == f.lastSent {
			continue
		}
		f.moveTo(f.cursor, f.cursor)
		cursors[f.set()] = f.cursor.String()
		if len(cursors) == maxCursors {
			c.appendAnswer(answer{Cursors: cursors})
			clear(cursors)
		}
	}
	if len(cursors) > 0 {
		c.appendAnswer(answer{Cursors: cursors})
	}
	c.moved = nil
}

// fail ends f after an error of its log. A set that was deleted, or deleted and made again, is
// reported as that. It returns an error if the memory is unavailable; f is then unchanged.
func (c *session) fail(f *setFollow, err error) error {
	set := f.set()
	if !errors.Is(err, feed.ErrGone) {
		c.stop(f, err, feed.Cursor{}, false)
		return nil
	}
	st, serr := c.server.memory.State(c.ctx, set)
	switch {
	case errors.Is(serr, feed.ErrNoSet):
		c.stop(f, feed.ErrNoSet, feed.Cursor{}, true)
	case isTemporary(serr):
		return serr
	case serr != nil:
		c.stop(f, serr, feed.Cursor{}, false)
	case f.begin != 0 && st.Begin != f.begin:
		c.restart(f, st)
	default:
		c.stop(f, err, st.Floor, false)
	}
	return nil
}

// remade returns the error for a cursor of a set that was deleted and made again.
func remade() error {
	p := problem.New(http.StatusNotFound, feed.ErrNoSet.Code, "the set of this cursor was deleted, and a new one was created; follow it with since=start")
	p.Err = feed.ErrNoSet
	return p
}

// restart handles a set that was deleted and made again. A session that follows every set starts over;
// in others the set looks deleted.
func (c *session) restart(f *setFollow, st feed.State) {
	if c.all == nil {
		c.stop(f, remade(), st.Floor, true)
		return
	}
	c.drop(f)
	c.noteStopped(st.Set, stop{absent: true, named: f.named})
	c.found = append(c.found, st.Set)
}

// stop ends f, and tells the client why. absent reports whether the set looks deleted to the client.
func (c *session) stop(f *setFollow, err error, cursor feed.Cursor, absent bool) {
	var id json.RawMessage
	if f.baseline != nil {
		id, f.baseline.id = f.baseline.id, nil
	}
	c.drop(f)
	c.noteStopped(f.set(), stop{absent: absent, named: f.named})
	c.appendError(id, f.set(), err, cursor)
}
