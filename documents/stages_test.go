package documents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// A limitedWriter takes so many writes. Then it fails.
type limitedWriter struct {
	bytes.Buffer
	writes int
	err    error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	runtime.Gosched()
	if w.writes--; w.writes < 0 {
		return 0, w.err
	}
	return w.Buffer.Write(p)
}

// What comes out of a behind is what went in, up to the first error; and its goroutine ends.
func FuzzBehind(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(10+seed), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, writes, fails uint8) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := &limitedWriter{writes: int(fails), err: errors.New("full")}
			b := &behind{w: w}
			var in []byte
			var failed error
			sizes := []int{0, 1, 500, writePage - 1, writePage, writePage + 1, 2 * writePage}
			for i := range writes {
				p := bytes.Repeat([]byte{i + 1}, sizes[r.IntN(len(sizes))])
				in = append(in, p...)
				n, err := b.Write(p)
				clear(p) // the caller may use it again
				if failed = err; err != nil {
					break
				}
				if n != len(p) {
					t.Fatalf("%d bytes of %d", n, len(p))
				}
			}
			if err := b.Close(); err != nil {
				failed = err
			}
			switch {
			case !bytes.HasPrefix(in, w.Bytes()):
				t.Error("other bytes came out")
			case writes <= fails && (failed != nil || w.Len() != len(in)):
				t.Errorf("%v, %d bytes of %d", failed, w.Len(), len(in))
			case writes > fails && failed != w.err:
				t.Errorf("%v in place of %v", failed, w.err)
			}
		})
	})
}

// A pagedLog has pages of entries, and then an error.
type pagedLog struct {
	changelog.Log
	pages int
	err   error
}

func (l *pagedLog) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.pages--; l.pages < 0 {
		return nil, l.err
	}
	b := &feed.Batch{Set: set, After: after, Entries: make([]feed.Entry, min(limit, 10))}
	for i := range b.Entries {
		b.Entries[i].Cursor = feed.Cursor{Position: after.Position + 1 + uint64(i), Micros: after.Micros + 1 + int64(i)}
	}
	b.Cursor = b.Entries[len(b.Entries)-1].Cursor
	return b, nil
}

func TestEntries(t *testing.T) {
	gone := errors.New("gone")
	last := feed.Cursor{Position: 25, Micros: 25}
	for name, test := range map[string]struct {
		last  feed.Cursor
		pages int // that the log has
		take  int // that the caller takes
		want  int // entries
		err   error
	}{
		"all":           {last, 3, 9, 25, nil},
		"none":          {feed.Cursor{}, 0, 9, 0, nil},
		"stopped":       {last, 3, 1, 10, nil},
		"broken":        {last, 2, 9, 20, gone},
		"another entry": {feed.Cursor{Position: 25, Micros: 99}, 3, 9, 25, moved()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it waits for the reader, so the reader has to end
				d := &Server{log: &pagedLog{pages: test.pages, err: gone}}
				got, pages := 0, 0
				var failed error
				for page, err := range d.entries(t.Context(), "set", feed.Cursor{}, test.last) {
					if failed = err; err != nil {
						continue
					}
					for i := range page {
						if got++; page[i].Position != uint64(got) {
							t.Errorf("position %d is entry %d", page[i].Position, got)
						}
					}
					if pages++; pages == test.take {
						break
					}
				}
				if got != test.want || !strings.HasSuffix(fmt.Sprint(failed), fmt.Sprint(test.err)) {
					t.Errorf("%d entries, %v; want %d, %v", got, failed, test.want, test.err)
				}
			})
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := &Server{log: &pagedLog{pages: 9}}
			var failed error
			for _, err := range d.entries(ctx, "set", feed.Cursor{}, last) {
				failed = err
				cancel()
			}
			if !errors.Is(failed, context.Canceled) {
				t.Errorf("%v", failed)
			}
		})
	})
}
