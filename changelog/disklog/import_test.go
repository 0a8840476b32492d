package disklog

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
	"github.com/rshub/rshub/feed"
)

// TestImportIsDurable crashes the machine after Finish, and in the middle of a copy. A
// copy that was crashed in the middle goes on with what is on the disk.
func TestImportIsDurable(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	from, err := Open("from", Options{FS: vfs.NewMem(), Fatal: fatal(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	const n = 30_000
	if err := from.Make(t.Context(), "set", feed.Description{}, 10_000); err != nil {
		t.Fatal(err)
	}
	for i := range n / 10 {
		if _, err := from.Append(t.Context(), "set", changelog.Publish{Changes: logtest.Sample(10*i%5000, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	disk := vfs.NewCrashableMem()
	opts := Options{FS: disk, Fatal: fatal(t), importBytes: 1}
	imp, err := OpenImport("to", from.ID(), opts)
	if err != nil {
		t.Fatal(err)
	}
	var crashed *vfs.MemFS // the disk as it was in the middle
	var done uint64
	p, err := changelog.Copy(t.Context(), from, imp, nil, func(p changelog.Progress) {
		if crashed == nil && p.ChangesDone > 0 {
			crashed, done = disk.CrashClone(vfs.CrashCloneCfg{}), p.ChangesDone
		}
	})
	if err != nil || p.ChangesDone != n {
		t.Fatalf("copied %d: %v", p.ChangesDone, err)
	}
	opts.FS = disk.CrashClone(vfs.CrashCloneCfg{})
	if err := imp.Close(); err != nil {
		t.Fatal(err)
	}
	finished, err := Open("to", opts)
	if err != nil {
		t.Fatalf("after a crash behind Finish: %v", err)
	}
	blocks := 0
	if err := finished.scan("log/", func(string, []byte) error { blocks++; return nil }); err != nil {
		t.Fatal(err)
	}
	if blocks != n/changelog.MaxBlockEntries {
		t.Errorf("%d changes are in %d blocks", n, blocks)
	}
	if err := finished.Close(); err != nil {
		t.Fatal(err)
	}

	opts.FS = crashed
	if _, err := Open("to", opts); !errors.Is(err, changelog.ErrUnfinished) {
		t.Fatalf("after a crash in the middle: %v", err)
	}
	if imp, err = OpenImport("to", from.ID(), opts); err != nil {
		t.Fatal(err)
	}
	defer imp.Close()
	if p, err = changelog.Copy(t.Context(), from, imp, nil, nil); err != nil || p.Before != done || p.ChangesDone != n {
		t.Errorf("copied %d, %d of them before a crash that came behind %d: %v", p.ChangesDone, p.Before, done, err)
	}
}

// TestImportIntoFull writes nothing to a disk with too little room.
func TestImportIntoFull(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenImport(dir, "ID", Options{Reserve: 1 << 62, Fatal: fatal(t)}); !errors.Is(err, feed.ErrFull) {
		t.Fatalf("error is %v", err)
	}
	imp, err := OpenImport(dir, "ID", Options{Fatal: fatal(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer imp.Close()
	imp.log.opts.Reserve = 1 << 62
	if err := imp.Finish(t.Context()); !errors.Is(err, feed.ErrFull) {
		t.Fatalf("error is %v", err)
	}
}

func TestOpenExisting(t *testing.T) {
	fsys := vfs.NewMem()
	if _, err := Open("data", Options{FS: fsys, Existing: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := fsys.Stat("data"); err == nil {
		t.Error("a directory was made")
	}
	if err := fsys.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("data", Options{FS: fsys, Existing: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	l, err := Open("data", Options{FS: fsys, Fatal: fatal(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open("data", Options{FS: fsys, Existing: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open("data", Options{FS: fsys, Existing: true, Fatal: fatal(t)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
