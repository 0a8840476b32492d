package redislog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

// Make makes a set. If Redis was emptied since Open, Make notices it.
func (l *Log) Make(ctx context.Context, set string, d feed.Description, listSize int) error {
	if err := l.make(ctx, set, d, listSize); err != nil {
		return fmt.Errorf("make set %q: %w", set, err)
	}
	return nil
}

func (l *Log) make(ctx context.Context, set string, d feed.Description, listSize int) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if listSize < 1 || listSize > changelog.MaxListSize {
		return resourcesync.Invalidf("a list size is 1 to %d, not %d", changelog.MaxListSize, listSize)
	}
	for range looks {
		if _, err := l.same(ctx, ""); err != nil {
			return err
		}
		id := l.ID()
		made, begin, err := l.makeHere(ctx, set, d, listSize)
		if err != nil {
			return err
		}
		// Redis may have been emptied meanwhile, and another hub may have begun a new
		// memory. The new set then has the wrong identity, and is removed again.
		if _, err := l.same(ctx, ""); err != nil || l.ID() == id {
			return afterwards(err)
		}
		if made {
			if err := l.unmake(ctx, set, id, begin); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: its memory is replaced again and again", feed.ErrUnavailable)
}

// makeHere makes a set in the memory whose identity the log has. made is true if the
// set is new. begin is when its log began.
func (l *Log) makeHere(ctx context.Context, set string, d feed.Description, listSize int) (made bool, begin string, err error) {
	// Each try looks at the set by itself: if a lost try has made the set and a client has
	// deleted it since, the next try may make it once more.
	err = l.write(ctx, func(t *redisconn.Try) error {
		// The name is added first, so that every set has its name in the list. It is
		// never removed, because another hub could make a new set of the same name at
		// that moment.
		send := l.ask // the next script waits for replicas, for both
		if l.conn.Cluster() {
			send = l.tell // the set may be on another server, with other replicas
		}
		if _, err := send(t, l.scripts.name, []string{l.setsKey()}, set); err != nil {
			return err
		}
		for range looks {
			was, err := t.HMGet(l.setKey(set), "log")
			if err != nil {
				return err
			}
			left := was.Text(0)
			if !strings.HasPrefix(left, "deleted ") {
				left = "" // the set exists: then the script does nothing, unless it is deleted now
			}
			reply, err := l.tell(t, l.scripts.make, l.allKeys(set), left, listSize, d.Title, d.DescribedBy, d.ChangeList, moreOf(d))
			if err == nil && reply.Word() == "clock" {
				now, _ := strconv.ParseInt(reply.Text(1), 10, 64)
				hub, _ := strconv.ParseInt(reply.Text(2), 10, 64)
				return l.apart(now, hub)
			}
			if !errors.Is(err, errAnew) {
				made, begin = reply.Number(1) == 1, reply.Text(2)
				return err
			}
		}
		return redisconn.Refuse(fmt.Errorf("%w: %w, again and again", feed.ErrUnavailable, errAnew))
	})
	return made, begin, err
}

// unmake deletes a set that was made with the identity id, which is no longer the
// log's.
func (l *Log) unmake(ctx context.Context, set, id, begin string) error {
	args := append(l.common(), begin)
	args[0] = id
	return l.write(ctx, func(t *redisconn.Try) error {
		_, err := l.tellAll(t, l.scripts.delete, l.keys(set), args)
		if _, other := errors.AsType[otherError](err); other || errors.Is(err, feed.ErrNoSet) || errors.Is(err, errAnew) {
			return nil // the set is gone, or another hub has made it with the new identity
		}
		return err
	})
}

// Describe replaces a set's description.
func (l *Log) Describe(ctx context.Context, set string, d feed.Description) error {
	id := rand.Text()
	err := l.again(func(c *redisconn.Call) error {
		s, by, err := l.described(ctx, set)
		if err != nil {
			return err
		}
		return l.do(ctx, c, func(t *redisconn.Try) error {
			_, err := l.tell(t, l.scripts.describe, l.keys(set), s.Begin, id, by, d.Title, d.DescribedBy, d.ChangeList, moreOf(d))
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set. Only its name and the datetime of its head stay, so that a new
// set of the same name begins later. Delete removes the set that exists when it is
// called, and never one that was made since: the publisher of that one was told that
// its changes are kept.
func (l *Log) Delete(ctx context.Context, set string) error {
	if err := l.delete(ctx, set); err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	l.forget(set)
	return nil
}

func (l *Log) delete(ctx context.Context, set string) error {
	s, err := l.state(ctx, set)
	if err != nil {
		return err
	}
	c := l.conn.Writing()
	deleted := false
	err = l.do(ctx, c, func(t *redisconn.Try) error {
		if !deleted {
			_, err := l.tell(t, l.scripts.delete, l.keys(set), s.Begin)
			gone := errors.Is(err, feed.ErrNoSet) || errors.Is(err, errAnew)
			if gone && !c.Lost() {
				return redisconn.Refuse(feed.ErrNoSet) // another call has deleted it
			}
			if err != nil && !gone { // if a try was lost, that try may have deleted the set
				return err
			}
			deleted = true
		}
		send := l.ask
		if c.Lost() {
			send = l.tell // the try that deleted the set may have waited for no replica
		}
		_, err := send(t, l.scripts.sweep, l.allKeys(set))
		return err
	})
	if deleted {
		return afterwards(err)
	}
	return err
}

// SweepDeleted removes the remains of deleted sets except their names and datetimes, for
// at most most sets, and returns for how many it did. A hub that is killed while it
// deletes a set leaves such remains.
func (l *Log) SweepDeleted(ctx context.Context, most int) (n int, err error) {
	if n, err = l.sweepDeleted(ctx, most); err != nil {
		return n, fmt.Errorf("remove what deleted sets have left: %w", err)
	}
	return n, nil
}

func (l *Log) sweepDeleted(ctx context.Context, most int) (n int, err error) {
	names, err := l.names(ctx)
	if err != nil {
		return 0, err
	}
	var deleted []string
	err = l.everySet(ctx, names, []string{"log"}, func(name string, values []any) error {
		if strings.HasPrefix(redisconn.Answer(values).Text(0), "deleted ") {
			deleted = append(deleted, name)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var left []string
	err = l.everySet(ctx, deleted, []string{"begin", "inventory"}, func(name string, values []any) error { // which sweep removes
		if v := redisconn.Answer(values); (v.Text(0) != "" || v.Text(1) != "") && len(left) < most {
			left = append(left, name)
		}
		return nil
	})
	for _, name := range left {
		if err == nil {
			err = l.sweep(ctx, name)
		}
		if errors.Is(err, feed.ErrNoSet) { // made anew, and deleted again
			err = nil
		}
		if err == nil {
			n++
		}
	}
	return n, err
}

// afterwards converts the error of a step that follows a successful write: the caller
// must not be told that nothing was written.
func afterwards(err error) error {
	if errors.Is(err, feed.ErrUnavailable) {
		return fmt.Errorf("%w: it was written, and then: %v", feed.ErrUnknown, err)
	}
	return err
}

// State returns what a set is now.
func (l *Log) State(ctx context.Context, set string) (feed.State, error) {
	s, err := l.state(ctx, set)
	if err != nil {
		return feed.State{}, fmt.Errorf("state of set %q: %w", set, err)
	}
	return s, nil
}

func (l *Log) state(ctx context.Context, set string) (feed.State, error) {
	s, _, err := l.described(ctx, set)
	return s, err
}

// described returns the present state of a set, and the id of the call that last
// described it.
func (l *Log) described(ctx context.Context, set string) (s feed.State, by string, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		n := len(stateFields)
		values, err := t.HMGet(l.setKey(set), append(stateFields[:n:n], "described")...)
		if err != nil {
			return err
		}
		if s, err = l.decodeState(set, values[:n]); err != nil {
			return redisconn.Refuse(err)
		}
		by = values.Text(n)
		return nil
	})
	return s, by, err
}
