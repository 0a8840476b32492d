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

// updateFile updates the file of a resource to the version of an entry. With force it does so
// even if the file looks correct. If packed is not nil, it reads the content from there first.
// An error, such as a full disk, concerns all resources; a failure of this resource alone is
// part of the outcome.
func (d *Directory) updateFile(ctx context.Context, e feed.Entry, timeout time.Duration, force bool, packed *pack.Member) (outcome, error) {
	loc := e.Change.Loc
	file, exists, err := d.home.Ledger.File(loc)
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
	trusted := exists && !force && d.isUnmodified(&file)
	if trusted && hasContent(&file, &e) {
		file.Entry = e
		return outcome{file: &file, action: Action{Kind: Unchanged}}, nil
	}
	name, err := d.path(loc)
	if invalid, ok := errors.AsType[*resourcesync.Error](err); ok {
		return d.failure(e, before, &fetch.Failure{Err: invalid}), nil
	}
	if err != nil {
		return outcome{}, err
	}
	t := &target{Directory: d, entry: e, name: name}
	if f, ok, err := t.adoptFile(); err != nil || ok {
		return outcome{file: f, action: Action{Kind: Unchanged}, dirs: t.parentDirs()}, err
	}
	w := fetch.Request{Change: &e.Change, Timeout: timeout, Changed: lastChange(&e)}
	if packed != nil {
		w.Packed = packed.Open
	} else if trusted {
		if w.Packed, err = t.openPatched(ctx, &file, timeout); err != nil {
			return outcome{}, err
		}
	}
	length := e.Change.Length
	if trusted && !fetch.NewSum(e.Change.Hash).HasHash() && (length == nil || *length == file.Size) {
		w.ETag, w.Modified = file.ETag, file.Modified
	}
	return t.fetchContent(ctx, w, &file, before)
}

// path returns the path of a resource, and assigns one if it has none. If the resource cannot
// have a path, the error is a *resourcesync.Error.
func (d *Directory) path(loc string) (string, error) {
	name, ok, err := d.home.Ledger.Path(loc)
	if err != nil || ok {
		return name, err
	}
	if _, err := d.opts.Names.Path(loc); err != nil {
		return "", err
	}
	if err := d.home.Ledger.AssignPaths(d.opts.Names, loc); err != nil {
		return "", err
	}
	name, ok, err = d.home.Ledger.Path(loc)
	if err == nil && !ok {
		err = resourcesync.Invalidf("path of %s: every candidate is in use", resourcesync.Shorten(loc))
	}
	return name, err
}

// hasContent reports whether a file is known to have the content of an entry.
func hasContent(f *ledger.File, e *feed.Entry) bool {
	if f.Entry.Cursor == e.Cursor && e.Position > 0 { // without a hub, Cursor is only a time
		return true
	}
	mine := resourcesync.Change{Hash: f.Entry.Change.Hash + " sha-256:" + f.SHA256, Length: &f.Size}
	theirs := resourcesync.Change{Hash: e.Change.Hash, Length: e.Change.Length}
	if !fetch.NewSum(theirs.Hash).HasHash() {
		return false
	}
	same, known := audit.SameContent(&mine, &theirs)
	return same && known && (theirs.Length == nil || *theirs.Length == f.Size)
}

// isUnmodified reports whether a file still has the size and modification time that were
// recorded.
func (d *Directory) isUnmodified(f *ledger.File) bool {
	info, err := d.home.Root.Lstat(f.Path)
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size && info.ModTime().UnixNano() == f.Mtime
}

// A target is a file that should get the content of an entry.
type target struct {
	*Directory
	entry feed.Entry
	name  string // path of the file
}

// adoptFile returns a record of the file if it already has the right content: a crash may have
// lost the record. Only a hash can show that.
func (t *target) adoptFile() (*ledger.File, bool, error) {
	sum := fetch.NewSum(t.entry.Change.Hash)
	if !sum.HasHash() {
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
	return t.newRecord(&fetch.Result{Size: sum.Size(), SHA256: sum.SHA256()}, info), true, f.Sync()
}

// newRecord returns the record of the file.
func (t *target) newRecord(result *fetch.Result, info fs.FileInfo) *ledger.File {
	return &ledger.File{
		Loc: t.entry.Change.Loc, Path: t.name, Entry: t.entry,
		Size: result.Size, SHA256: result.SHA256, ETag: result.ETag, Modified: result.Modified, Mtime: info.ModTime().UnixNano(),
	}
}

// fetchContent fetches the content into a temporary file, which install later renames.
func (t *target) fetchContent(ctx context.Context, w fetch.Request, old *ledger.File, before *ledger.Failure) (outcome, error) {
	part := partName(t.entry.Change.Loc)
	flags := os.O_RDWR | os.O_CREATE | os.O_TRUNC
	// Only a hash shows whether a crash of the machine damaged the part.
	if before != nil && before.Part != nil && fetch.NewSum(t.entry.Change.Hash).HasHash() {
		flags &^= os.O_TRUNC
		w.Part = &fetch.Part{URL: before.Part.URL, ETag: before.Part.ETag}
	}
	temporary, err := t.home.Root.OpenFile(home.Parts+"/"+part, flags, 0o666)
	if err != nil {
		return outcome{}, err
	}
	keep := false
	defer func() {
		if !keep {
			_ = temporary.Close() // the file is discarded
		}
	}()
	result, err := t.opts.Fetcher.Get(ctx, w, temporary)
	if f, ok := errors.AsType[*fetch.Failure](err); ok {
		o := t.failure(t.entry, before, f)
		if f.Part != nil {
			o.failure.Part = &ledger.Part{File: part, URL: f.Part.URL, ETag: f.Part.ETag}
			return o, nil
		}
		return o, t.removeFile(home.Parts + "/" + part)
	}
	if err != nil && ctx.Err() == nil { // an error of the local disk: free the space
		err = errors.Join(err, t.removeFile(home.Parts+"/"+part))
	}
	if err != nil {
		return outcome{}, err
	}
	if result.Unchanged {
		old.Entry = t.entry
		return outcome{file: old, action: Action{Kind: Unchanged}}, t.removeFile(home.Parts + "/" + part)
	}
	if at := lastModified(&t.entry.Change, result); !at.IsZero() {
		if err := t.home.Root.Chtimes(home.Parts+"/"+part, at, at); err != nil {
			return outcome{}, err
		}
	}
	info, err := temporary.Stat()
	if err != nil {
		return outcome{}, err
	}
	keep = true
	return outcome{download: &download{target: t, temporary: temporary, file: t.newRecord(result, info), before: before}}, nil
}

// A download is a complete content in a temporary file. It replaces the target only once it is
// durable; otherwise a crash of the machine could lose both the old and the new content.
type download struct {
	*target
	temporary *os.File // closed by commit
	file      *ledger.File
	before    *ledger.Failure
}

// install replaces the target with the temporary file.
func (c *download) install() (outcome, error) {
	part := home.Parts + "/" + partName(c.entry.Change.Loc)
	err := c.moveIntoPlace(part)
	if IsDiskFailure(err) {
		return outcome{}, fmt.Errorf("write %s: %w", c.name, err)
	}
	if err != nil { // a foreign file or directory is in the way
		return c.failure(c.entry, c.before, &fetch.Failure{Err: err}), c.removeFile(part)
	}
	return outcome{file: c.file, action: Action{Kind: Fetched, Bytes: c.file.Size}, dirs: c.parentDirs()}, nil
}

// parentDirs returns the directories above the file, up to the root of the mirror.
func (t *target) parentDirs() (dirs []string) {
	for dir := path.Dir(t.name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return append(dirs, ".")
}

// moveIntoPlace creates the directories of the file and renames the temporary file to it.
func (t *target) moveIntoPlace(part string) (err error) {
	for range 10 { // another goroutine may be removing this directory with a resource
		if err = t.home.Root.Rename(part, t.name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err = t.home.Root.MkdirAll(path.Dir(t.name), 0o777); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// IsDiskFailure reports whether an error concerns all files, such as a full disk.
func IsDiskFailure(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// lastModified returns the modification time of a content according to the source or, failing
// that, its server.
func lastModified(c *resourcesync.Change, result *fetch.Result) time.Time {
	if !c.Lastmod.IsZero() {
		return c.Lastmod
	}
	at, _ := http.ParseTime(result.Modified)
	return at
}

// lastChange returns the latest time at which the content may have changed according to the
// entry, or zero if it names none.
func lastChange(e *feed.Entry) time.Time {
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
