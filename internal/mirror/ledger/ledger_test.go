package ledger

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/resourcesync"
)

func open(t *testing.T, dir string) *Ledger {
	t.Helper()
	l, err := Open(dir, func(err error) { panic(err) })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func entry(loc string, position uint64) feed.Entry {
	n := int64(7)
	return feed.Entry{Cursor: feed.Cursor{Position: position, Micros: int64(position) * 1e6}, Change: resourcesync.Change{
		Loc: loc, Change: resourcesync.Updated, Hash: "md5:00 sha-256:11", Length: &n, Lastmod: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Links: []resourcesync.Link{{Rel: "duplicate", Href: "https://example.org/<&>"}},
	}}
}

func commit(t *testing.T, l *Ledger, b *Batch) {
	t.Helper()
	if err := l.Commit(b); err != nil {
		t.Fatal(err)
	}
}

// A reopened ledger has exactly the committed changes.
func TestLedgerReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir)
	if _, err := Open(dir, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second Open() = %v, want an error about the lock", err)
	}
	file := File{Loc: "https://h/a", Path: "h/A", Size: 5, Mtime: 6, SHA256: "ab", ETag: `"x"`, Modified: "y", Entry: entry("https://h/a", 1)}
	failure := Failure{Loc: "https://h/b", Entry: entry("https://h/b", 2), Reason: "<no>", Since: time.Unix(1, 0).UTC(), Next: time.Unix(2, 0).UTC(), Tries: 3, Part: &Part{"p", "u", `"e"`}}
	listed := ListedResource{Entry: entry("https://h/c", 0), Traversal: 4}
	var b Batch
	b.PutFile(file)
	b.PutFailure(failure)
	b.PutListed(listed)
	b.PutMeta("m", []int{1})
	commit(t, l, &b)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	defer l.Close()
	if got, ok, err := l.File(file.Loc); err != nil || !ok || !reflect.DeepEqual(got, file) {
		t.Errorf("File() = %+v, %v, %v, want %+v", got, ok, err, file)
	}
	if got, ok, err := l.Failure(failure.Loc); err != nil || !ok || !reflect.DeepEqual(got, failure) {
		t.Errorf("Failure() = %+v, %v, %v, want %+v", got, ok, err, failure)
	}
	if got, ok, err := l.ListedResource("https://h/c"); err != nil || !ok || !reflect.DeepEqual(got, listed) {
		t.Errorf("ListedResource() = %+v, %v, %v, want %+v", got, ok, err, listed)
	}
	var m []int
	if ok, err := l.Meta("m", &m); err != nil || !ok || len(m) != 1 {
		t.Errorf("Meta() = %v, %v, %v, want [1]", m, ok, err)
	}
	if loc, ok, err := l.Owner("H/a"); err != nil || !ok || loc != file.Loc {
		t.Errorf("Owner() = %q, %v, %v, want %q", loc, ok, err, file.Loc)
	}
	if got := l.Counts(); got != (Counts{1, 5, 1}) {
		t.Errorf("Counts() = %+v, want {1 5 1}", got)
	}
	if _, ok, err := l.File("https://h/b"); ok || err != nil {
		t.Errorf("File() of a failure = %v, %v, want none", ok, err)
	}
	b = Batch{}
	b.RemoveFile(file.Loc)
	b.PutFile(File{Loc: failure.Loc, Path: "h/b", Size: 1, Entry: failure.Entry})
	b.RemoveListed("https://h/c")
	b.PutMeta("m", nil)
	commit(t, l, &b)
	if got := l.Counts(); got != (Counts{1, 1, 0}) {
		t.Errorf("Counts() = %+v, want {1 1 0}", got)
	}
	if _, ok, _ := l.Owner("h/a"); ok {
		t.Error("Owner() of a removed file has a loc, want none")
	}
}

// No two resources have the same path, in whatever order they are added and removed, and the
// counts are right.
func TestAssignPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir)
	seed := uint64(time.Now().UnixNano()) // the test logs its seed
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "A", "a/b", "a/B", "A/b", "a/b/c", "a/", "a//", "?a", "a?b/c", "b", "b/c", "B"}
	held := map[string]string{}  // path by loc
	paths := map[string]string{} // loc by path in lower case
	for i := range 600 {
		loc := "https://h/" + names[r.IntN(len(names))]
		var b Batch
		switch path, has := held[loc]; {
		case has && r.IntN(2) == 0:
			b.RemoveFile(loc)
			delete(held, loc)
			delete(paths, strings.ToLower(path))
		default:
			if err := l.AssignPaths(filename.Names{}, loc, "https://h/"+names[r.IntN(len(names))]); err != nil {
				t.Fatal(err)
			}
			got, ok, err := l.Path(loc)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if has && got != path {
				t.Fatalf("Path(%q) = %q, want the earlier %q", loc, got, path)
			}
			if other, taken := paths[strings.ToLower(got)]; taken && other != loc {
				t.Fatalf("Path(%q) = %q, already the path of %q", loc, got, other)
			}
			for p := range paths {
				if q := strings.ToLower(got); strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") {
					t.Fatalf("path %q is a file and a directory, see %q", got, p)
				}
			}
			if r.IntN(3) == 0 {
				b.PutFailure(Failure{Loc: loc, Entry: entry(loc, 1)})
				break
			}
			b.PutFile(File{Loc: loc, Path: got, Size: 1, Entry: entry(loc, uint64(i+1))})
			held[loc], paths[strings.ToLower(got)] = got, loc
		}
		commit(t, l, &b)
		if i%150 == 0 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open(t, dir)
		}
	}
	defer l.Close()
	n := 0
	for f, err := range l.Files(t.Context()) {
		if err != nil || held[f.Loc] != f.Path {
			t.Errorf("Files() yields %+v, %v, want the path %q", f, err, held[f.Loc])
		}
		n++
	}
	if n != len(held) || l.Counts().Files != int64(n) {
		t.Errorf("got %d files, counted %d, want %d", n, l.Counts().Files, len(held))
	}
}
