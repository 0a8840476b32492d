package mirror

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/source/discovery"
)

// auditFiles returns the problems of the files, given a bookkeeping with these entries up to a
// cursor.
func (b *fixture) auditFiles(to feed.Cursor, entries ...feed.Entry) (found []string) {
	b.t.Helper()
	own := inventory.New(inventory.NewMemory(), "demo", inventory.Options{Cache: inventory.NewCache(1 << 20)})
	_, head, err := own.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	root, err := own.Writer(1).Commit(b.t.Context(), inventory.Changes{Base: head.Newest(), To: to, Sorted: func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	a := &auditRun{Mirror: &Mirror{home: b.home}, dir: b.Directory, expected: treeState{own.Tree(root).State()}, yield: func(p Problem) error {
		found = append(found, string(p.Kind)+" "+p.Path)
		return nil
	}}
	if err := a.checkFiles(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return found
}

type treeState struct{ *inventory.State }

func (s treeState) All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error] {
	return s.Walk(ctx, inventory.Prefix(prefix))
}

// After an interrupted update, some of its files exist and the bookkeeping does not have it.
// These files are ahead, and not wrong unless they are damaged.
func TestAuditAfterInterruptedUpdate(t *testing.T) {
	for _, hash := range []bool{true, false} {
		t.Run(fmt.Sprintf("hashes %v", hash), func(t *testing.T) {
			b := newFixture(t)
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
			if found := b.auditFiles(to, first...); len(found) > 0 {
				t.Errorf("with hashes %v: problems before the update = %q, want none", hash, found)
			}
			b.apply(entry("/a", "two"), entry("/d", "two"))
			if found := b.auditFiles(to, first...); len(found) > 0 {
				t.Errorf("with hashes %v: problems = %q, want none", hash, found)
			}
			for _, name := range []string{"a", "d"} {
				if err := os.WriteFile(filepath.Join(b.dir, name), []byte("too"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if found, want := b.auditFiles(to, first...), []string{"damaged a"}; !slices.Equal(found, want) {
				t.Errorf("with hashes %v: problems = %q, want %q", hash, found, want)
			}
		})
	}
}

// A file from a lost log is not ahead of the bookkeeping: its change had a higher position and
// was older.
func TestAuditFileOfLostLog(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "lost")
	lost := b.entry("/a", "lost")
	b.apply(lost)
	now := lost
	now.Change.Hash = hashOf("now")
	now.Cursor = feed.Cursor{Position: lost.Position - 1, Micros: lost.Micros + 1}
	if found, want := b.auditFiles(now.Cursor, now), []string{"stale a"}; !slices.Equal(found, want) {
		t.Errorf("problems = %q, want %q", found, want)
	}
	if found, want := b.auditFiles(now.Cursor), []string{"extra a"}; !slices.Equal(found, want) {
		t.Errorf("problems = %q, want %q", found, want)
	}
}

// A file is missing if something else is in the place of its directory.
func TestAuditReplacedDirectory(t *testing.T) {
	b := newFixture(t)
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
	found, want := b.auditFiles(entries[1].Cursor, entries...), []string{"missing file/a", "missing link/a", "extra file", "extra link"}
	if !slices.Equal(found, want) {
		t.Errorf("problems = %q, want %q", found, want)
	}
}

// The lost+found directory of a file system is not part of the mirror.
func TestAuditIgnoresLostFound(t *testing.T) {
	b := newFixture(t)
	if err := os.MkdirAll(filepath.Join(b.dir, "lost+found", "#1"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "lost+found", "#2"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if found := b.auditFiles(feed.Cursor{}); len(found) > 0 {
		t.Errorf("problems = %q, want none", found)
	}
}

// A running mirror may remove a directory while an audit walks the files.
func TestAuditDuringRemoval(t *testing.T) {
	b := newFixture(t)
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
			t.Errorf("Audit() yields %+v, %v, want a/stranger", p, err)
		}
	}
	if found != 1 {
		t.Errorf("got %d problems, want 1", found)
	}
}
