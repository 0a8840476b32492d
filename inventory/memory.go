package inventory

import (
	"context"
	"iter"

	"github.com/rshub/rshub/feed"
)

// A Log says what a Memory has to know of the logs. Every changelog.Log does.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Memory is a Store in memory: for tests, and for the inventory that a destination keeps
// of itself.
type Memory struct {
	log Log
}

// NewMemory returns an empty Memory beside a log. Without a log (nil) every set exists,
// its log began at 0, and it holds every cursor.
func NewMemory(log Log) *Memory { return &Memory{log: log} }

// Load returns the record of a set, see Store.
func (m *Memory) Load(ctx context.Context, set string) (Record, error) { panic("being written") }

// Swap replaces the record of a set, see Store.
func (m *Memory) Swap(ctx context.Context, set string, s Swap) error { panic("being written") }

// Put writes pages, see Store.
func (m *Memory) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []Page) error {
	panic("being written")
}

// Get returns the bytes of pages, see Store.
func (m *Memory) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	panic("being written")
}

// Remove removes pages, see Store.
func (m *Memory) Remove(ctx context.Context, set string, begin int64, numbers []uint64) error {
	panic("being written")
}

// Numbers yields the numbers of the pages of a set, see Store.
func (m *Memory) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	panic("being written")
}
