package redislog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

// A source is a memory on disk to copy.
type source struct {
	t *testing.T
	*disklog.Log
}

func newSource(t *testing.T) source {
	t.Helper()
	l, err := disklog.Open(t.Context(), "data", disklog.Options{FS: vfs.NewMem()})
	ok(t, err)
	t.Cleanup(func() { ok(t, l.Close()) })
	return source{t, l}
}

func (s source) add(set string, p ...changelog.Publish) {
	s.t.Helper()
	_, err := s.Append(s.t.Context(), set, p...)
	ok(s.t, err)
}

func (s source) make(set string, listSize int, p ...changelog.Publish) {
	s.t.Helper()
	ok(s.t, s.Make(s.t.Context(), set, feed.Description{Title: "about " + set, Private: true}, listSize))
	s.add(set, p...)
}

// eventful gives the source an eventful history.
func (s source) eventful() {
	s.t.Helper()
	ctx := s.t.Context()
	ok(s.t, s.Make(ctx, "empty", feed.Description{}, 10))
	s.make("trimmed", 10, changelog.Publish{Changes: changes("a", 95)})
	_, err := s.Trim(ctx, "trimmed", changelog.Retention{Count: 15})
	ok(s.t, err)
	for i := range 130 {
		p := changelog.Publish{Changes: changes("single", 1), Key: fmt.Sprint("key", i), Hash: [32]byte{byte(i)}}
		if i == 0 {
			s.make("single", 100, p)
		} else {
			s.add("single", p)
		}
	}
	s.make("mixed", 1500, changelog.Publish{Changes: changes("a", 2)}, changelog.Publish{Changes: changes("b", 12_500), Key: "last"})
	large := changes("large", 6)
	for i := range large {
		large[i].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "big", Value: strings.Repeat(fmt.Sprint(i), 300_000)}}
	}
	s.make("large", 7, changelog.Publish{Changes: large})
	for _, set := range []string{"gone", "again"} {
		s.make(set, 10, changelog.Publish{Changes: changes("gone", 25), Key: "gone"})
		ok(s.t, s.Delete(ctx, set))
	}
	s.make("again", 11, changelog.Publish{Changes: changes("again", 12), Key: "again"})
}

// answers returns the visible state of a memory: its identity, its sets, their entries.
func answers(t *testing.T, l changelog.Log) (all []any) {
	t.Helper()
	states, err := l.Sets(t.Context())
	ok(t, err)
	for _, s := range states {
		all = append(all, s)
		for c := s.Floor; c != s.Head; {
			b, err := l.Since(t.Context(), s.Set, c, 0)
			ok(t, err)
			if b.Diverged || b.After != c || len(b.Entries) == 0 {
				t.Fatalf("Since(%q, %v): After = %v, %d entries, Diverged = %t, want entries after the cursor", s.Set, c, b.After, len(b.Entries), b.Diverged)
			}
			for _, e := range b.Entries {
				all = append(all, e)
			}
			c = b.Cursor
		}
	}
	return append(all, l.ID())
}

func openImport(t *testing.T, url, id string, opts Options) (*Import, error) {
	t.Helper()
	m, err := OpenImport(t.Context(), connect(t, url, redisconn.Options{}), id, opts)
	if err == nil {
		t.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// copyAll copies a source, and finishes the copy.
func copyAll(ctx context.Context, m *Import, from source) error {
	_, err := m.Copy(ctx, from, func(Progress) {})
	if err != nil {
		return err
	}
	return m.Finish(ctx)
}

// TestImport interrupts a copy at every step. An unfinished copy is not a memory, and is started
// from scratch, even if the source has changed since. The finished copy gives the same answers.
func TestImport(t *testing.T) {
	t.Parallel()
	from := newSource(t)
	from.make("later", 10, changelog.Publish{Changes: changes("a", 5)}) // deleted before the last run
	from.eventful()
	opts := Options{Prefix: prefix()}
	reports := 0
	for at := 1; ; at += 3 {
		m, err := openImport(t, shared.url(), from.ID(), opts)
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err = m.Copy(ctx, from, func(Progress) {
			if n++; n == at {
				cancel()
			}
		})
		cancel()
		if reports = n; n < at {
			ok(t, err)
			ok(t, m.Finish(t.Context()))
			break
		}
		wantErr(t, context.Canceled, err)
		if _, err := openAt(t, shared.url(), opts); !errors.Is(err, changelog.ErrUnfinished) {
			t.Fatalf("Open() of an unfinished copy = %v, want ErrUnfinished", err)
		}
		if at == 1 {
			ok(t, from.Delete(t.Context(), "later"))
			from.add("single", changelog.Publish{Changes: changes("b", 3)})
			_, err = from.Trim(t.Context(), "mixed", changelog.Retention{Count: 11_000})
			ok(t, err)
		}
	}
	if reports < 6 {
		t.Errorf("got %d steps", reports)
	}
	if _, err := openImport(t, shared.url(), from.ID(), opts); err == nil || !strings.Contains(err.Error(), "finished copy") {
		t.Errorf("OpenImport() of a finished copy = %v, want an error that names the finished copy", err)
	}
	if _, err := openImport(t, shared.url(), "other", opts); err == nil || !strings.Contains(err.Error(), from.ID()) {
		t.Errorf("OpenImport() over another memory = %v, want an error that names its identity", err)
	}
	checkCopy(t, from, start(t, shared.url(), opts))
}

// checkCopy compares a source with its copy, including the results of more publishes.
func checkCopy(t *testing.T, from source, copied *Log) {
	t.Helper()
	if want, got := answers(t, from), answers(t, copied); !reflect.DeepEqual(got, want) {
		t.Fatalf("copy has\n\t%.2000v, want\n\t%.2000v", got, want)
	}
	keys := []string{"gone", "again", "last", "key0", "key77", "key129"}
	for _, set := range []string{"single", "mixed", "again", "empty"} {
		for _, key := range keys {
			p := changelog.Publish{Changes: changes("again", 1), Key: key, Hash: [32]byte{77}}
			want, err := from.Append(t.Context(), set, p)
			ok(t, err)
			got, err := copied.Append(t.Context(), set, p)
			ok(t, err)
			if want[0].Replayed && got[0].Cursor != want[0].Cursor || !errors.Is(got[0].Err, want[0].Err) || got[0].Replayed != want[0].Replayed || got[0].After.Position != want[0].After.Position {
				t.Errorf("Append() with key %s to set %s = %+v, want %+v", key, set, got[0], want[0])
			}
		}
	}
	left, err := from.Deleted(t.Context())
	ok(t, err)
	if len(left) != 2 {
		t.Errorf("got %d deleted sets", len(left))
	}
	for set, l := range left {
		ok(t, copied.Make(t.Context(), set, feed.Description{}, 10))
		if s, err := copied.State(t.Context(), set); err != nil || s.Begin <= l.End {
			t.Errorf("set %q: Begin = %d, want later than the deleted set's end %d: %v", set, s.Begin, l.End, err)
		}
	}
}

// TestCopyIsPacked copies changes that were published one at a time. The copy must have them in
// full blocks.
func TestCopyIsPacked(t *testing.T) {
	t.Parallel()
	from := newSource(t)
	from.make("set", 10_000)
	for range 3_000 {
		from.add("set", changelog.Publish{Changes: changes("b", 1)})
	}
	opts := Options{Prefix: prefix()}
	m, err := openImport(t, shared.url(), from.ID(), opts)
	ok(t, err)
	ok(t, copyAll(t.Context(), m, from))
	keys := start(t, shared.url(), opts).keys("set")
	admin := shared.admin(t)
	if packed, live := admin.HLen(t.Context(), keys[1]).Val(), admin.HLen(t.Context(), keys[2]).Val(); packed != 3 || live != 0 {
		t.Errorf("got 3,000 changes in %d packed and %d live blocks", packed, live)
	}
}

// TestLateImportSteps executes steps of a copy late: after another Import of the same copy was
// opened, or after the copy is finished and a hub has used it. None may change anything.
func TestLateImportSteps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	from := newSource(t)
	from.make("set", 10_000, changelog.Publish{Changes: changes("a", 25), Key: "key"})
	s, err := from.State(ctx, "set")
	ok(t, err)
	b, err := from.Since(ctx, "set", s.Floor, 0)
	ok(t, err)
	opts := Options{Prefix: prefix()}
	first, err := openImport(t, shared.url(), from.ID(), opts)
	ok(t, err)
	ok(t, first.beginSet(ctx, s))
	second, err := openImport(t, shared.url(), from.ID(), opts)
	ok(t, err)
	ok(t, copyAll(ctx, second, from))
	last := second.steps
	copied := start(t, shared.url(), opts)
	add(t, copied, "hub", 3)
	want := answers(t, copied)
	for what, step := range map[string]func(*Import) error{
		"begin":   func(m *Import) error { return m.beginSet(ctx, s) },
		"add":     func(m *Import) error { return m.addEntries(ctx, s, s.Floor, b.Entries) },
		"keys":    func(m *Import) error { return m.copyKeys(ctx, from, "set") },
		"deleted": func(m *Import) error { return m.copyTombstone(ctx, "set", changelog.Tombstone{End: 1, Latest: 1}) },
	} {
		wantErr(t, errBusy, step(first))
		second.steps = last - 2 // as if the network had delayed it
		wantErr(t, errBusy, step(second))
		if got := answers(t, copied); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n\t%v, want unchanged\n\t%v", what, got, want)
		}
	}
	wantErr(t, errBusy, first.Finish(ctx))
}

// TestImportIntoEmptiedRedis empties Redis in the middle of a copy.
func TestImportIntoEmptiedRedis(t *testing.T) {
	t.Parallel()
	from := newSource(t)
	from.make("set", 10, changelog.Publish{Changes: changes("a", 25)})
	opts := Options{Prefix: prefix()}
	m, err := openImport(t, shared.url(), from.ID(), opts)
	ok(t, err)
	ok(t, shared.admin(t).Del(t.Context(), opts.Prefix+":memory").Err())
	if err := copyAll(t.Context(), m, from); err == nil || !strings.Contains(err.Error(), "emptied") {
		t.Errorf("error = %v, want it to say that the set was emptied", err)
	}
	other := start(t, shared.url(), opts) // creates a memory there
	if err := copyAll(t.Context(), m, from); err == nil || !strings.Contains(err.Error(), other.ID()) {
		t.Errorf("error = %v, want it to name the other memory", err)
	}
}

// TestTornImport tears each command of a copy, see TestTorn, and copies again between the two
// starts.
func TestTornImport(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts Redis for every command of an import")
	}
	from := newSource(t)
	from.make("set", 20, changelog.Publish{Changes: changes("a", 70), Key: "key"})
	from.make("gone", 20)
	ok(t, from.Delete(t.Context(), "gone"))
	want := answers(t, from)

	s := newServer(t, "--appendfsync", "always")
	opts := Options{Prefix: "rshub"}
	copyTo := func() {
		t.Helper()
		m, err := openImport(t, s.url(), from.ID(), opts)
		if err != nil && strings.Contains(err.Error(), "finished copy") {
			return
		}
		ok(t, err)
		ok(t, copyAll(t.Context(), m, from))
	}
	before := readAOF(t, s)
	copyTo()
	written := readAOF(t, s)[len(before):]
	for i, at := range commandStarts(t, written) {
		s.kill()
		ok(t, os.WriteFile(aof(s), append(bytes.Clone(before), written[:at+3]...), 0o600))
		ok(t, s.start())
		copyTo()
		for _, when := range []string{"", " after the second start"} {
			l := start(t, s.url(), opts)
			if got := answers(t, l); !reflect.DeepEqual(got, want) {
				t.Fatalf("torn in command %d, got%s\n\t%v, want\n\t%v", i, when, got, want)
			}
			_ = l.Close()
			s.kill()
			ok(t, s.start())
		}
	}
}
