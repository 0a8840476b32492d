package disklog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// copyMark is the name of a file in the directory of a copy or a backup that no hub
// has started on. It is a file and not a key, so that Checkpoint need not write to the
// store of the copy.
const copyMark = "COPY"

const copyText = "This is a copy of a change memory. A hub that starts on it gives new names to the Change Lists that are open, and removes this file.\n"

// markCopy makes a store a copy. When it returns nil, the mark is durable.
func markCopy(files vfs.FS, dir string) error {
	f, err := files.Create(files.PathJoin(dir, copyMark), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write([]byte(copyText))
		err = errors.Join(err, f.Sync(), f.Close(), syncDir(files, dir))
	}
	if err != nil {
		return fmt.Errorf("mark the copy in %s: %w", dir, err)
	}
	return nil
}

// start begins a new epoch of every set, if the store has the mark of a copy. Then it
// removes the mark. A crash between the two steps only makes the next start begin
// epochs again.
func (l *Log) start(ctx context.Context) error {
	mark := l.opts.FS.PathJoin(l.dir, copyMark)
	if _, err := l.opts.FS.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look for the mark of a copy: %w", err)
	}
	for name := range l.sets {
		if _, err := l.BeginEpoch(ctx, name, feed.Cursor{}); err != nil {
			return err
		}
	}
	if err := errors.Join(l.opts.FS.Remove(mark), syncDir(l.opts.FS, l.dir)); err != nil {
		return fmt.Errorf("remove the mark of a copy: %w", err)
	}
	l.opts.Logger.Info("the change memory is a copy: the Change Lists that are open get new names", "sets", len(l.sets))
	return nil
}

// BeginEpoch begins a new epoch of a set's log.
func (l *Log) BeginEpoch(ctx context.Context, name string, lost feed.Cursor) (bool, error) {
	begun, err := l.beginEpoch(ctx, name, lost)
	if err != nil {
		return false, fmt.Errorf("begin an epoch of set %q: %w", name, err)
	}
	return begun, nil
}

func (l *Log) beginEpoch(ctx context.Context, name string, lost feed.Cursor) (bool, error) {
	s := l.find(name)
	if s == nil {
		return false, feed.ErrNoSet
	}
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.write.Unlock()
	after := s.tip.Head
	if !lost.IsZero() {
		var err error
		if after, err = l.common(s, lost); err != nil || after == lost {
			return false, err
		}
	}
	k, floor := uint64(s.record.ListSize), s.record.Floor
	s.record.Epochs = s.record.Epochs.Begin(changelog.NewEpoch(), after.Position/k+1, floor.Position/k+1)
	b := l.db.NewBatch()
	put(b, setKey(name), s.record.encode())
	if err := l.commit(b); err != nil {
		return false, err
	}
	epochs := s.record.Epochs
	s.show(func(state *feed.State) { state.Epochs = epochs })
	return true, nil
}

// common returns a cursor up to which this log equals the log that had the
// cursor lost. It returns lost itself if the log still has it, if retention may
// have removed it, or if it may come from a deleted set.
func (l *Log) common(s *set, lost feed.Cursor) (feed.Cursor, error) {
	v, err := l.view(s)
	if err != nil {
		return lost, err
	}
	after := lost
	ok, err := v.knows(lost)
	if err == nil && !ok && lost.Micros >= v.state.Floor.Micros && lost.Micros > v.state.Was {
		after, err = v.before(lost, l.opts.ClockSkew.Microseconds())
	}
	return after, errors.Join(err, v.close())
}
