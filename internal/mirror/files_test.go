package mirror

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/source/discovery"
)

// booked returns what an audit says of the files, if the bookkeeping has these entries, and
// ends at a cursor.
func (b *bench) booked(to feed.Cursor, entries ...feed.Entry) (found []string) {
	b.t.Helper()
	own := inventory.New(inventory.NewMemory(), "demo", inventory.Options{Cache: inventory.NewCache(1 << 20)})
	_, head, err := own.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	root, err := own.Commit(b.t.Context(), inventory.Changes{Base: head.Newest(), To: to, Sorted: func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	a := &auditRun{Mirror: &Mirror{home: b.home}, dir: b.Directory, expected: bookedState{own.Tree(root).State()}, yield: func(p Problem) error {
		found = append(found, string(p.Kind)+" "+p.Path)
		return nil
	}}
	if err := a.checkFiles(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return found
}

type bookedState struct{ *inventory.State }

func (s bookedState) All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error] {
	return s.Walk(ctx, inventory.Prefix(prefix))
}

// An update was interrupted: some of its files are there, and the bookkeeping does not have
// the update. These files are late, and not wrong, unless they are damaged.
func TestInterruptedUpdate(t *testing.T) {
	for _, hash := range []bool{true, false} {
		b := newBench(t)
		entry := func(name, text string) feed.Entry {
			b.set(name, text)
			e := b.entry(name, text)
			if !hash {
				e.Change.Hash = ""
			}
			return e
		}
		first := []feed.Entry{entry("/a", "one"), entry("/b", "one"), entry("/c", "one")}
		to := first[2].Cursor
		b.apply(first...)
		if found := b.booked(to, first...); len(found) > 0 {
			t.Errorf("hashes %v: before, the audit finds %q", hash, found)
		}
		b.apply(entry("/a", "two"), entry("/d", "two"))
		if found := b.booked(to, first...); len(found) > 0 {
			t.Errorf("hashes %v: the audit finds %q", hash, found)
		}
		for _, name := range []string{"a", "d"} {
			if err := os.WriteFile(filepath.Join(b.dir, name), []byte("too"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if found, want := b.booked(to, first...), []string{"damaged a"}; !slices.Equal(found, want) {
			t.Errorf("hashes %v: the audit finds %q, want %q", hash, found, want)
		}
	}
}

// A file is not ahead of the bookkeeping because of a log that was lost: there its change had
// a higher position, and was older.
func TestFileOfLostLog(t *testing.T) {
	b := newBench(t)
	b.set("/a", "lost")
	lost := b.entry("/a", "lost")
	b.apply(lost)
	now := lost
	now.Change.Hash = sumOf("now")
	now.Cursor = feed.Cursor{Position: lost.Position - 1, Micros: lost.Micros + 1}
	if found, want := b.booked(now.Cursor, now), []string{"stale a"}; !slices.Equal(found, want) {
		t.Errorf("the audit finds %q, want %q", found, want)
	}
	if found, want := b.booked(now.Cursor), []string{"extra a"}; !slices.Equal(found, want) {
		t.Errorf("the audit finds %q, want %q", found, want)
	}
}

// A file is missing if something else is in the place of its directory.
func TestDirectoryIsReplaced(t *testing.T) {
	b := newBench(t)
	var entries []feed.Entry
	for _, name := range []string{"/file/a", "/link/a"} {
		b.set(name, "text")
		entries = append(entries, b.entry(name, "text"))
	}
	b.apply(entries...)
	for _, name := range []string{"file", "link"} {
		if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(b.dir, "link")); err != nil {
		t.Skip(err)
	}
	found, want := b.booked(entries[1].Cursor, entries...), []string{"missing file/a", "missing link/a", "extra file", "extra link"}
	if !slices.Equal(found, want) {
		t.Errorf("the audit finds %q, want %q", found, want)
	}
}

// What a file system keeps for itself at the top is nothing of the mirror's.
func TestLostAndFound(t *testing.T) {
	b := newBench(t)
	if err := os.MkdirAll(filepath.Join(b.dir, "lost+found", "#1"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "lost+found", "#2"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if found := b.booked(feed.Cursor{}); len(found) > 0 {
		t.Errorf("the audit finds %q", found)
	}
}

// A directory may be removed while an audit looks for files: a running mirror does that.
func TestDirectoryIsRemoved(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(b.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "a", "stranger"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	found := 0
	for p, err := range New(b.home, &discovery.Source{}, b.Directory, Options{}).Audit(t.Context(), b.Directory, AuditOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		found++
		if err := os.Remove(filepath.Join(b.dir, "b")); err != nil || p.Path != "a/stranger" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if found != 1 {
		t.Errorf("%d problems", found)
	}
}
