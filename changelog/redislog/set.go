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

// Make creates a set; see changelog.Log. It notices if Redis was emptied since Open.
func (l *Log) Make(ctx context.Context, set string, d feed.Description, listSize int) error {
	if err := l.makeSet(ctx, set, d, listSize); err != nil {
		return fmt.Errorf("create set %q: %w", set, err)
	}
	return nil
}

func (l *Log) makeSet(ctx context.Context, set string, d feed.Description, listSize int) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if listSize < 1 || listSize > changelog.MaxListSize {
		return resourcesync.Invalidf("list size: want 1 to %d, got %d", changelog.MaxListSize, listSize)
	}
	for range maxAttempts {
		if _, err := l.syncIdentity(ctx, ""); err != nil {
			return err
		}
		id := l.ID()
		made, begin, err := l.makeInMemory(ctx, set, d, listSize)
		if err != nil {
			return err
		}
		// Redis may have been emptied in the meantime, and another hub may have created a
		// new memory. Then the new set has the wrong identity, and is removed again.
		if _, err := l.syncIdentity(ctx, ""); err != nil || l.ID() == id {
			return afterWrite(err)
		}
		if made {
			if err := l.undoMake(ctx, set, id, begin); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: the memory was replaced repeatedly", feed.ErrUnavailable)
}

// makeInMemory creates a set in the memory with the log's identity. made is true if the set is new.
// begin is the begin of its log.
func (l *Log) makeInMemory(ctx context.Context, set string, d feed.Description, listSize int) (made bool, begin string, err error) {
	// Each attempt reads the set itself: if an attempt whose answer was lost has created the
	// set, and a client has deleted it since, the next attempt may create it again.
	err = l.write(ctx, func(t *redisconn.Try) error {
		// The name is added first, so that the name of every set is in the list. It is
		// never removed, because another hub could create a new set with the same name
		// at that moment.
		send := l.run // the next script waits for the replicas of both
		if l.conn.Cluster() {
			send = l.runWait // the set may be on another server, with other replicas
		}
		if _, err := send(t, l.scripts.name, []string{l.setsKey()}, set); err != nil {
			return err
		}
		for range maxAttempts {
			was, err := t.HMGet(l.setKey(set), "log")
			if err != nil {
				return err
			}
			left := was.Text(0)
			if !strings.HasPrefix(left, "deleted ") {
				left = "" // the set exists; then the script does nothing, unless the set was deleted in the meantime
			}
			reply, err := l.runWait(t, l.scripts.make, l.allKeys(set), left, listSize, d.Title, d.DescribedBy, d.ChangeList, encodeMore(d))
			if err == nil && reply.Word() == "clock" {
				now, _ := strconv.ParseInt(reply.Text(1), 10, 64)
				hub, _ := strconv.ParseInt(reply.Text(2), 10, 64)
				return l.compareClocks(now, hub)
			}
			if !errors.Is(err, errSetChanged) {
				made, begin = reply.Number(1) == 1, reply.Text(2)
				return err
			}
		}
		return redisconn.Refuse(fmt.Errorf("%w: %w repeatedly", feed.ErrUnavailable, errSetChanged))
	})
	return made, begin, err
}

// undoMake deletes a set that was created with the identity id, which is no longer the log's.
func (l *Log) undoMake(ctx context.Context, set, id, begin string) error {
	args := append(l.commonArgs(), begin)
	args[0] = id
	return l.write(ctx, func(t *redisconn.Try) error {
		_, err := l.runWaitArgs(t, l.scripts.delete, l.keys(set), args)
		if _, other := errors.AsType[otherError](err); other || errors.Is(err, feed.ErrNoSet) || errors.Is(err, errSetChanged) {
			return nil // the set was deleted, or another hub has created it with the new identity
		}
		return err
	})
}

// Describe replaces the description of a set.
func (l *Log) Describe(ctx context.Context, set string, d feed.Description) error {
	id := rand.Text()
	err := l.retryChanged(func(c *redisconn.Call) error {
		s, by, err := l.describedState(ctx, set)
		if err != nil {
			return err
		}
		return l.do(ctx, c, func(t *redisconn.Try) error {
			_, err := l.runWait(t, l.scripts.describe, l.keys(set), s.Begin, id, by, d.Title, d.DescribedBy, d.ChangeList, encodeMore(d))
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("describe set %q: %w", set, err)
	}
	return nil
}

// Delete removes a set. Only its name and the datetimes of its changelog.Tombstone stay, so that a
// new set with the same name starts later. Delete removes the set that exists at the time of the
// call, and never one created since, because the publisher of that one was promised that its
// changes are stored.
func (l *Log) Delete(ctx context.Context, set string) error {
	if err := l.delete(ctx, set); err != nil {
		return fmt.Errorf("delete set %q: %w", set, err)
	}
	l.dropTail(set)
	return nil
}

func (l *Log) delete(ctx context.Context, set string) error {
	s, err := l.state(ctx, set)
	if err != nil {
		return err
	}
	c := l.conn.WriteCall()
	deleted := false
	err = l.do(ctx, c, func(t *redisconn.Try) error {
		if !deleted {
			_, err := l.runWait(t, l.scripts.delete, l.keys(set), s.Begin)
			gone := errors.Is(err, feed.ErrNoSet) || errors.Is(err, errSetChanged)
			if gone && !c.Lost() {
				return redisconn.Refuse(feed.ErrNoSet) // deleted by another call
			}
			if err != nil && !gone { // if the answer to an attempt was lost, that attempt may have deleted the set
				return err
			}
			deleted = true
		}
		send := l.run
		if c.Lost() {
			send = l.runWait // the attempt that deleted the set may not have waited for replicas
		}
		_, err := send(t, l.scripts.sweep, l.allKeys(set))
		return err
	})
	if deleted {
		return afterWrite(err)
	}
	return err
}

// SweepDeleted removes the remaining data of deleted sets, except their names and datetimes. It
// processes at most limit sets and returns their number. Such data remains if a hub is killed while
// it deletes a set.
func (l *Log) SweepDeleted(ctx context.Context, limit int) (n int, err error) {
	if n, err = l.sweepDeleted(ctx, limit); err != nil {
		return n, fmt.Errorf("remove data of deleted sets: %w", err)
	}
	return n, nil
}

func (l *Log) sweepDeleted(ctx context.Context, limit int) (n int, err error) {
	names, err := l.setNames(ctx)
	if err != nil {
		return 0, err
	}
	var deleted []string
	err = l.readSets(ctx, names, []string{"log"}, func(name string, values []any) error {
		if strings.HasPrefix(redisconn.Answer(values).Text(0), "deleted ") {
			deleted = append(deleted, name)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var left []string
	err = l.readSets(ctx, deleted, []string{"begin", "inventory"}, func(name string, values []any) error { // fields that sweep removes
		if v := redisconn.Answer(values); (v.Text(0) != "" || v.Text(1) != "") && len(left) < limit {
			left = append(left, name)
		}
		return nil
	})
	for _, name := range left {
		if err == nil {
			err = l.sweep(ctx, name)
		}
		if errors.Is(err, feed.ErrNoSet) { // created again and deleted again
			err = nil
		}
		if err == nil {
			n++
		}
	}
	return n, err
}

// afterWrite converts the error of a step that follows a successful write, because the caller must
// not conclude that nothing was written.
func afterWrite(err error) error {
	if errors.Is(err, feed.ErrUnavailable) {
		return fmt.Errorf("%w: the change was written, but a later step failed: %v", feed.ErrUnknown, err)
	}
	return err
}

// State returns the state of a set.
func (l *Log) State(ctx context.Context, set string) (feed.State, error) {
	s, err := l.state(ctx, set)
	if err != nil {
		return feed.State{}, fmt.Errorf("read state of set %q: %w", set, err)
	}
	return s, nil
}

func (l *Log) state(ctx context.Context, set string) (feed.State, error) {
	s, _, err := l.describedState(ctx, set)
	return s, err
}

// describedState returns the state of a set, and the id of the call that wrote its description.
func (l *Log) describedState(ctx context.Context, set string) (s feed.State, by string, err error) {
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
