package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rshub/rshub/feed"
)

// maxSpools is the maximum total size of the temporary files of polls, in bytes, unless they are on the disk
// of the change memory. The volume for /tmp in the chart is larger.
const maxSpools = 4 << 30

// A Disk returns its free bytes, and how many of them are reserved.
type Disk interface {
	Space() (free, reserve uint64, err error)
}

// Spools limit the temporary files of polls. On the disk of the change memory they leave space for it, and
// count towards the quota of the creator of the set.
type Spools struct {
	quota *Quota
	disk  Disk // disk of the change memory; nil if the files are elsewhere

	mu   sync.Mutex
	sets map[string]spool
}

// A spool is the size of the temporary files of the poll of a set.
type spool struct {
	by    string // creator of the set, or the set if creators are unknown
	bytes int64
}

// NewSpools returns Spools without files. disk is the disk of the change memory if the files are on it,
// otherwise nil.
func NewSpools(q *Quota, disk Disk) *Spools {
	return &Spools{quota: q, disk: disk, sets: map[string]spool{}}
}

// Acquire sets the total size of the temporary files of the poll of a set. 0 ends the poll. It returns
// feed.ErrFull if there is no space.
func (s *Spools) Acquire(ctx context.Context, set string, bytes int64) error {
	if bytes == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sets, set)
		return nil
	}
	by := set
	if s.quota.callers {
		var err error
		if by, err = s.quota.store.Creator(ctx, set); err != nil && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, own := bytes, bytes
	for name, other := range s.sets {
		if name == set {
			continue
		}
		if all += other.bytes; other.by == by {
			own += other.bytes
		}
	}
	if err := s.checkLocked(by, bytes-s.sets[set].bytes, all, own); err != nil {
		return err
	}
	s.sets[set] = spool{by, bytes}
	return nil
}

// checkLocked returns an error if there is no space for more bytes, with which all polls need all bytes, and
// those of the creator by need own bytes.
func (s *Spools) checkLocked(by string, more, all, own int64) error {
	if s.disk == nil {
		if all > maxSpools {
			return fmt.Errorf("%w: temporary files for lists of sources are limited to %d MiB in total", feed.ErrFull, maxSpools>>20)
		}
		return nil
	}
	free, reserve, err := s.disk.Space()
	if err != nil {
		return fmt.Errorf("measure the free disk space: %w", err)
	}
	if free < 2*reserve+uint64(max(more, 0)) {
		return fmt.Errorf("%w: got %d MiB of free disk space, too little for the list of the source", feed.ErrFull, free>>20)
	}
	if quota := s.quota.quota.Load(); quota > 0 && s.quota.total(by)+own > quota {
		return fmt.Errorf("%w: the sets of one creator and the lists of their sources would exceed the quota of %d MiB", feed.ErrFull, quota>>20)
	}
	return nil
}
