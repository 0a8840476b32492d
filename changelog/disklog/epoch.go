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
		if err := l.BeginEpoch(ctx, name, feed.MaxNumber); err != nil {
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
func (l *Log) BeginEpoch(ctx context.Context, name string, after uint64) error {
	if err := l.beginEpoch(ctx, name, after); err != nil {
		return fmt.Errorf("begin an epoch of set %q: %w", name, err)
	}
	return nil
}

func (l *Log) beginEpoch(ctx context.Context, name string, after uint64) error {
	s := l.find(name)
	if s == nil {
		return feed.ErrNoSet
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	k, floor := uint64(s.record.ListSize), s.record.Floor
	s.record.Epochs = s.record.Epochs.Begin(changelog.NewEpoch(), min(after, s.tip.Head.Position)/k+1, floor.Position/k+1)
	b := l.db.NewBatch()
	put(b, setKey(name), s.record.encode())
	if err := l.commit(b); err != nil {
		return err
	}
	epochs := s.record.Epochs
	s.show(func(state *feed.State) { state.Epochs = epochs })
	return nil
}
