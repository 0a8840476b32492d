package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/mirror/pack"
	"github.com/rshub/rshub/resourcesync"
)

// get brings the file of a resource to the version of an entry. With anew it does so even
// if the file seems to be right. It takes the content from packed, if that has it. An
// error concerns all resources, such as a full disk. A failure of this resource alone is
// an outcome.
func (d *Directory) get(ctx context.Context, e feed.Entry, patience time.Duration, anew bool, packed *pack.Member) (outcome, error) {
	loc := e.Change.Loc
	file, had, err := d.home.Ledger.File(loc)
	if err != nil {
		return outcome{}, err
	}
	failure, failed, err := d.home.Ledger.Failure(loc)
	if err != nil {
		return outcome{}, err
	}
	var before *ledger.Failure
	if failed {
		before = &failure
	}
	trusted := had && !anew && d.unchanged(&file)
	if trusted && fits(&file, &e) {
		file.Entry = e
		return outcome{file: &file, deed: Deed{Kind: Kept}}, nil
	}
	name, err := d.path(loc)
	if invalid, ok := errors.AsType[*resourcesync.Error](err); ok {
		return d.fail(e, before, &fetch.Failure{Err: invalid}), nil
	}
	if err != nil {
		return outcome{}, err
	}
	t := &target{Directory: d, entry: e, name: name}
	if f, ok, err := t.adopt(); err != nil || ok {
		return outcome{file: f, deed: Deed{Kind: Kept}, dirs: t.above()}, err
	}
	w := fetch.Wanted{Change: &e.Change, Patience: patience, Changed: changed(&e)}
	if packed != nil {
		w.Packed = packed.Open
	} else if trusted {
		if w.Packed, err = t.patched(ctx, &file, patience); err != nil {
			return outcome{}, err
		}
	}
	length := e.Change.Length
	if trusted && !fetch.NewSum(e.Change.Hash).Verified() && (length == nil || *length == file.Size) {
		w.ETag, w.Modified = file.ETag, file.Modified
	}
	return t.fetch(ctx, w, &file, before)
}

// path returns the path of a resource. It chooses one if the resource has none. The
// error is a
// *resourcesync.Error if the resource cannot have one.
func (d *Directory) path(loc string) (string, error) {
	name, ok, err := d.home.Ledger.Path(loc)
	if err != nil || ok {
		return name, err
	}
	if _, err := d.opts.Names.Path(loc); err != nil {
		return "", err
	}
	if err := d.home.Ledger.Place(d.opts.Names, loc); err != nil {
		return "", err
	}
	name, ok, err = d.home.Ledger.Path(loc)
	if err == nil && !ok {
		err = resourcesync.Invalidf("every path for %s is taken", resourcesync.Shorten(loc))
	}
	return name, err
}

// fits reports whether a file surely has the content of an entry.
func fits(f *ledger.File, e *feed.Entry) bool {
	if f.Entry.Cursor == e.Cursor && e.Position > 0 { // without a hub, Cursor is only a time
		return true
	}
	mine := resourcesync.Change{Hash: f.Entry.Change.Hash + " sha-256:" + f.SHA256, Length: &f.Size}
	theirs := resourcesync.Change{Hash: e.Change.Hash, Length: e.Change.Length}
	if !fetch.NewSum(theirs.Hash).Verified() {
		return false
	}
	same, known := audit.SameContent(&mine, &theirs)
	return same && known && (theirs.Length == nil || *theirs.Length == f.Size)
}

// unchanged reports whether a file has the size and times that it had when it
// was made.
func (d *Directory) unchanged(f *ledger.File) bool {
	info, err := d.home.Root.Lstat(f.Path)
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size && info.ModTime().UnixNano() == f.Mtime
}

// A target is a file that has to get the content of an entry.
type target struct {
	*Directory
	entry feed.Entry
	name  string // the path of the file
}

// adopt returns a record of the file if the file already has the right content, because
// a crash may have lost the record. Only a hash can show that.
func (t *target) adopt() (*ledger.File, bool, error) {
	sum := fetch.NewSum(t.entry.Change.Hash)
	if !sum.Verified() {
		return nil, false, nil
	}
	info, err := t.home.Root.Lstat(t.name)
	if err != nil || !info.Mode().IsRegular() || t.entry.Change.Length != nil && info.Size() != *t.entry.Change.Length {
		return nil, false, nil
	}
	f, err := t.home.Root.Open(t.name)
	if err != nil {
		return nil, false, nil
	}
	defer f.Close()
	if _, err := io.Copy(sum, f); err != nil || sum.Check(t.entry.Change.Length) != nil {
		return nil, false, nil
	}
	return t.record(&fetch.Got{Size: sum.Size(), SHA256: sum.SHA256()}, info), true, f.Sync()
}

// record returns the record of the file.
func (t *target) record(got *fetch.Got, info fs.FileInfo) *ledger.File {
	return &ledger.File{
		Loc: t.entry.Change.Loc, Path: t.name, Entry: t.entry,
		Size: got.Size, SHA256: got.SHA256, ETag: got.ETag, Modified: got.Modified, Mtime: info.ModTime().UnixNano(),
	}
}

// fetch fetches the content into a temporary file, and then replaces the file with it.
func (t *target) fetch(ctx context.Context, w fetch.Wanted, old *ledger.File, before *ledger.Failure) (outcome, error) {
	part := partName(t.entry.Change.Loc)
	flags := os.O_RDWR | os.O_CREATE | os.O_TRUNC
	// Only a hash shows whether a crash of the machine has damaged the part.
	if before != nil && before.Part != nil && fetch.NewSum(t.entry.Change.Hash).Verified() {
		flags &^= os.O_TRUNC
		w.Part = &fetch.Part{URL: before.Part.URL, ETag: before.Part.ETag}
	}
	temporary, err := t.home.Root.OpenFile(home.Parts+"/"+part, flags, 0o666)
	if err != nil {
		return outcome{}, err
	}
	kept := false
	defer func() {
		if !kept {
			_ = temporary.Close() // an error does not matter here
		}
	}()
	got, err := t.fetcher.Get(ctx, w, temporary)
	if f, ok := errors.AsType[*fetch.Failure](err); ok {
		o := t.fail(t.entry, before, f)
		if f.Part != nil {
			o.failure.Part = &ledger.Part{File: part, URL: f.Part.URL, ETag: f.Part.ETag}
			return o, nil
		}
		return o, t.unlink(home.Parts + "/" + part)
	}
	if err != nil && ctx.Err() == nil { // an error of the local disk: free the room of the file
		err = errors.Join(err, t.unlink(home.Parts+"/"+part))
	}
	if err != nil {
		return outcome{}, err
	}
	if got.Unchanged {
		old.Entry = t.entry
		return outcome{file: old, deed: Deed{Kind: Kept}}, t.unlink(home.Parts + "/" + part)
	}
	if at := modified(&t.entry.Change, got); !at.IsZero() {
		if err := t.home.Root.Chtimes(home.Parts+"/"+part, at, at); err != nil {
			return outcome{}, err
		}
	}
	info, err := temporary.Stat()
	if err != nil {
		return outcome{}, err
	}
	kept = true
	return outcome{come: &come{target: t, temporary: temporary, file: t.record(got, info), before: before}}, nil
}

// A come is a complete content in a temporary file. It replaces the file only when it is
// durable. Otherwise a crash of the machine could leave neither the old content nor the
// new one.
type come struct {
	*target
	temporary *os.File // commit closes it
	file      *ledger.File
	before    *ledger.Failure
}

// replace replaces the file with the temporary file.
func (c *come) replace() (outcome, error) {
	part := home.Parts + "/" + partName(c.entry.Change.Loc)
	err := c.rename(part)
	if lasting(err) {
		return outcome{}, fmt.Errorf("write %s: %w", c.name, err)
	}
	if err != nil { // a foreign file is in the way
		return c.fail(c.entry, c.before, &fetch.Failure{Err: err}), c.unlink(part)
	}
	return outcome{file: c.file, deed: Deed{Kind: Fetched, Bytes: c.file.Size}, dirs: c.above()}, nil
}

// above returns the directories that lead to the file.
func (t *target) above() (dirs []string) {
	for dir := path.Dir(t.name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return append(dirs, ".")
}

// rename makes the directories of the file, and moves the temporary file there.
func (t *target) rename(part string) (err error) {
	for range 10 { // another goroutine may be removing a resource together with this directory
		if err = t.home.Root.Rename(part, t.name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err = t.home.Root.MkdirAll(path.Dir(t.name), 0o777); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// lasting reports whether an error of the disk concerns all files.
func lasting(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// modified returns when a content was last modified: by the source, else by its
// server.
func modified(c *resourcesync.Change, got *fetch.Got) time.Time {
	if !c.Lastmod.IsZero() {
		return c.Lastmod
	}
	at, _ := http.ParseTime(got.Modified)
	return at
}

// changed returns the latest time at which an entry may say that its content changed; zero: it
// says none.
func changed(e *feed.Entry) time.Time {
	at := e.Change.Lastmod
	if published := time.UnixMicro(e.Micros); e.Micros > 0 && published.After(at) {
		at = published
	}
	return at
}

// partName returns the name of the temporary file of a resource.
func partName(loc string) string {
	sum := sha256.Sum256([]byte(loc))
	return hex.EncodeToString(sum[:16])
}
