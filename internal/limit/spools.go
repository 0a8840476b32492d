package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rshub/rshub/feed"
)

// maxSpools is how many bytes the temporary files of all looks take at once, if they are not
// on the disk of the change memory. The volume for /tmp in the chart is larger.
const maxSpools = 4 << 30

// A Disk knows how many bytes are free on it, and how many of these are kept back.
type Disk interface {
	Space() (free, reserve uint64, err error)
}

// Spools bound the temporary files of looks at sources. On the disk of the change memory they
// leave room for it, and count as what the sets of their maker keep.
type Spools struct {
	quota *Quota
	disk  Disk // of the change memory and of the files; nil: the files are elsewhere

	mu   sync.Mutex
	sets map[string]spool
}

// A spool is what the look at the source of a set takes.
type spool struct {
	by    string // who made the set, or the set where nobody knows
	bytes int64
}

// NewSpools returns Spools without files. disk is the disk of the change memory if the files
// are there, and otherwise nil.
func NewSpools(q *Quota, disk Disk) *Spools {
	return &Spools{quota: q, disk: disk, sets: map[string]spool{}}
}

// Take says that the look at the source of a set takes so many bytes from now on, in all. 0 is
// for the end of the look. The error is feed.ErrFull if there is no room.
func (s *Spools) Take(ctx context.Context, set string, bytes int64) error {
	if bytes == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sets, set)
		return nil
	}
	by := set
	if s.quota.callers {
		var err error
		if by, err = s.quota.store.Maker(ctx, set); err != nil && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, his := bytes, bytes
	for name, other := range s.sets {
		if name == set {
			continue
		}
		if all += other.bytes; other.by == by {
			his += other.bytes
		}
	}
	if err := s.roomLocked(by, bytes-s.sets[set].bytes, all, his); err != nil {
		return err
	}
	s.sets[set] = spool{by, bytes}
	return nil
}

// roomLocked returns an error if there is no room for more bytes, which make all that all
// looks take, and his of one maker.
func (s *Spools) roomLocked(by string, more, all, his int64) error {
	if s.disk == nil {
		if all > maxSpools {
			return fmt.Errorf("%w: the temporary files for the lists of sources may take at most %d MiB at once", feed.ErrFull, maxSpools>>20)
		}
		return nil
	}
	free, reserve, err := s.disk.Space()
	if err != nil {
		return fmt.Errorf("ask how much room the disk has: %w", err)
	}
	if free < 2*reserve+uint64(max(more, 0)) {
		return fmt.Errorf("%w: the disk has %d MiB left, too little for the list of the source", feed.ErrFull, free>>20)
	}
	if most := s.quota.most.Load(); most > 0 && s.quota.together(by)+his > most {
		return fmt.Errorf("%w: the sets of one maker and the lists of their sources would take more than the %d MiB that they may", feed.ErrFull, most>>20)
	}
	return nil
}
