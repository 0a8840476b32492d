package mirror

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/mirror/filename"
	"github.com/rshub/rshub/mirror/ledger"
	"github.com/rshub/rshub/source/reconcile"
)

// DirectoryOptions say how a Directory works. Zero values are the defaults.
type DirectoryOptions struct {
	Fetch     fetch.Options
	Names     filename.Names
	MaxDelete reconcile.Bound // how many of the mirror's resources may be deleted within a day
	Patience  time.Duration   // how long Apply waits for one content before it leaves the content to Retry; default 2 minutes
	Pause     time.Duration   // before a failed resource is tried again, doubled each time; default 10 s
	MostPause time.Duration   // the longest of these pauses; default 1 hour
	Did       func(Deed)      // called after each Deed, by several goroutines at once; default: nothing is called
}

// A Deed is what a Directory did for a resource.
type Deed struct {
	Kind  DeedKind
	Loc   string
	Bytes int64 // bytes that were fetched
	Err   error // why it failed
}

// A DeedKind says what was done.
type DeedKind int

// The kinds of deeds.
const (
	Fetched DeedKind = iota // the content was fetched
	Kept                    // the file was already right
	Failed                  // the content was not fetched; it is tried again later
	Removed                 // the file was removed
)

// A Directory is a Sink that keeps the contents of resources as files. A file is replaced
// in one step, so readers of the directory see either the whole old content or the whole
// new one.
type Directory struct {
	home    *Home
	fetcher *fetch.Fetcher
	opts    DirectoryOptions

	removing sync.Mutex // held while files are removed

	mu   sync.Mutex
	busy map[string]chan struct{} // by loc: a goroutine works on the resource; closed when it has finished
}

var _ Sink = (*Directory)(nil)

// NewDirectory returns the Directory of a home.
func NewDirectory(h *Home, o DirectoryOptions) (*Directory, error) {
	orElse(&o.Patience, 2*time.Minute)
	orElse(&o.Pause, 10*time.Second)
	orElse(&o.MostPause, time.Hour)
	if o.Did == nil {
		o.Did = func(Deed) {}
	}
	d := &Directory{home: h, fetcher: fetch.New(o.Fetch), opts: o, busy: map[string]chan struct{}{}}
	if h.copied() {
		return d, nil // a copy is only read
	}
	return d, d.sweep()
}

func orElse(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

// sweep removes temporary files that will not be continued.
func (d *Directory) sweep() error {
	used := map[string]bool{}
	for f, err := range d.home.Ledger.Failures(context.Background()) {
		if err != nil {
			return err
		}
		if f.Part != nil {
			used[f.Part.File] = true
		}
	}
	entries, err := fs.ReadDir(d.home.Root.FS(), partsDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !used[e.Name()] {
			if err := d.home.Root.Remove(partsDir + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold waits until no goroutine works on a resource, and then reserves the
// resource until release.
func (d *Directory) hold(ctx context.Context, loc string) error {
	for {
		d.mu.Lock()
		other := d.busy[loc]
		if other == nil {
			d.busy[loc] = make(chan struct{})
			d.mu.Unlock()
			return nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Directory) release(loc string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.busy[loc])
	delete(d.busy, loc)
}

// Apply fetches and removes files.
func (d *Directory) Apply(ctx context.Context, entries []feed.Entry) error {
	return d.applyPacked(ctx, entries, nil)
}

// applyPacked is Apply with contents from a package. It fetches a content from the
// resource's URL if the package lacks it or has a wrong one.
func (d *Directory) applyPacked(ctx context.Context, entries []feed.Entry, packed map[string]*member) error {
	wanted, gone := newest(entries)
	locs := make([]string, len(wanted))
	for i := range wanted {
		locs[i] = wanted[i].Change.Loc
	}
	if err := d.home.Ledger.Place(d.opts.Names, locs...); err != nil { // all at once, because get would place them one by one
		return err
	}
	err := d.work(ctx, wanted, func(ctx context.Context, e feed.Entry) (outcome, error) {
		return d.get(ctx, e, d.opts.Patience, false, packed[e.Change.Loc])
	})
	if err != nil {
		return err
	}
	return d.remove(ctx, gone)
}

// Retry fetches files whose earlier tries failed.
func (d *Directory) Retry(ctx context.Context, all bool) (Left, error) {
	const most = 1_000 // at once
	var due []feed.Entry
	now := time.Now()
	left, err := d.left(ctx, func(f *ledger.Failure) {
		if (all || !f.Next.After(now)) && (all || len(due) < most) {
			due = append(due, f.Entry)
		}
	})
	if err != nil || len(due) == 0 {
		return left, err
	}
	err = d.work(ctx, due, func(ctx context.Context, e feed.Entry) (outcome, error) {
		f, ok, err := d.home.Ledger.Failure(e.Change.Loc)
		if err != nil || !ok {
			return outcome{}, err // a newer change was applied, or the resource was deleted
		}
		return d.get(ctx, f.Entry, 0, false, nil)
	})
	if err != nil {
		return left, err
	}
	return d.left(ctx, func(*ledger.Failure) {})
}

// left returns what is left to do, and calls each with every failure.
func (d *Directory) left(ctx context.Context, each func(*ledger.Failure)) (left Left, err error) {
	for f, err := range d.home.Ledger.Failures(ctx) {
		if err != nil {
			return left, err
		}
		left.Resources++
		if left.Next.IsZero() || f.Next.Before(left.Next) {
			left.Next = f.Next
		}
		each(&f)
	}
	return left, nil
}

// An outcome is the result of the work on one resource. The zero outcome
// changes nothing.
type outcome struct {
	file    *ledger.File
	failure *ledger.Failure
	come    *come // a fetched content, which commit puts in its place; that gives the final outcome
	deed    Deed
	dirs    []string // directories that must be durable before the outcome
}

const (
	commitMost  = 256 // outcomes of one commit
	commitEvery = time.Second
)

// work calls one for each resource, several at a time, and commits the outcomes. It holds
// a resource until its outcome is committed. After an error, the outcomes so far are
// committed, too.
func (d *Directory) work(ctx context.Context, entries []feed.Entry, one func(context.Context, feed.Entry) (outcome, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan feed.Entry)
	done := make(chan outcome)
	var wg sync.WaitGroup
	for range min(len(entries), d.workers()) {
		wg.Go(func() {
			for e := range todo {
				if d.hold(ctx, e.Change.Loc) != nil {
					continue
				}
				o, err := one(ctx, e)
				if err != nil {
					cancel(err)
				}
				o.deed.Loc = e.Change.Loc
				done <- o
			}
		})
	}
	go func() {
		defer close(done)
		defer wg.Wait()
		defer close(todo)
		for _, e := range mixed(entries) {
			select {
			case todo <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	err := d.collect(done, cancel)
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *Directory) workers() int {
	n := d.opts.Fetch.Parallel
	if n == 0 {
		n = 16
	}
	return min(8*n, 256) // most of them wait for their host
}

// collect commits outcomes until there are no more.
func (d *Directory) collect(done <-chan outcome, cancel context.CancelCauseFunc) error {
	var waiting []outcome
	var failed error
	commit := func() {
		if failed == nil {
			failed = d.commit(waiting)
		}
		if failed != nil {
			cancel(failed)
		}
		for i := range waiting {
			if c := waiting[i].come; c != nil {
				_ = c.temporary.Close() // the next try begins again
			}
			d.release(waiting[i].deed.Loc)
		}
		waiting = waiting[:0]
	}
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	for {
		select {
		case o, ok := <-done:
			if !ok {
				commit()
				return failed
			}
			if waiting = append(waiting, o); len(waiting) == commitMost {
				commit()
			}
		case <-ticker.C:
			commit()
		}
	}
}

// commit makes outcomes durable.
func (d *Directory) commit(outcomes []outcome) error {
	if err := d.place(outcomes); err != nil {
		return err
	}
	dirs := map[string]bool{}
	var b ledger.Batch
	for i := range outcomes {
		o := &outcomes[i]
		for _, dir := range o.dirs {
			dirs[dir] = true
		}
		switch {
		case o.file != nil:
			b.File(*o.file)
		case o.failure != nil:
			b.Failure(*o.failure)
		}
	}
	if err := d.syncDirs(dirs); err != nil {
		return err
	}
	if err := d.home.Ledger.Commit(&b); err != nil {
		return err
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.file != nil || o.failure != nil {
			d.opts.Did(o.deed)
		}
	}
	return nil
}

// place makes fetched contents durable, and then moves them to the paths of their files.
func (d *Directory) place(outcomes []outcome) error {
	var parts []*os.File
	for i := range outcomes {
		if c := outcomes[i].come; c != nil {
			parts = append(parts, c.temporary)
		}
	}
	if err := d.sync(parts, (*os.File).Sync); err != nil {
		return err
	}
	for i := range outcomes {
		c := outcomes[i].come
		if c == nil {
			continue
		}
		_ = c.temporary.Close() // it is already durable
		o, err := c.replace()
		if err != nil {
			return err
		}
		o.deed.Loc = outcomes[i].deed.Loc
		outcomes[i] = o
	}
	return nil
}

// syncDirs makes the names in directories durable. It skips directories that are not there.
func (d *Directory) syncDirs(dirs map[string]bool) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	}()
	for dir := range dirs {
		f, err := d.home.Root.Open(dir)
		if absent(err) {
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	return d.sync(files, syncDirectory)
}

// many is the number of files from which on sync makes the whole file system durable.
// That writes more, but is much faster than one file after the other.
const many = 16

// sync makes files durable. one does that for a single file.
func (d *Directory) sync(files []*os.File, one func(*os.File) error) error {
	if len(files) >= many && syncsAll {
		return syncAll(d.home.top)
	}
	for _, f := range files {
		if err := one(f); err != nil {
			return err
		}
	}
	return nil
}

// mixed reorders entries so that those of one host are spread. A slow host then does not
// delay the others.
func mixed(entries []feed.Entry) []feed.Entry {
	byHost := map[string][]feed.Entry{}
	var hosts []string
	for _, e := range entries {
		host := ""
		if u, err := url.Parse(e.Change.Loc); err == nil {
			host = u.Host
		}
		if byHost[host] == nil {
			hosts = append(hosts, host)
		}
		byHost[host] = append(byHost[host], e)
	}
	if len(hosts) < 2 {
		return entries
	}
	all := make([]feed.Entry, 0, len(entries))
	for i := 0; len(all) < len(entries); i++ {
		for _, host := range hosts {
			if list := byHost[host]; i < len(list) {
				all = append(all, list[i])
			}
		}
	}
	return all
}

// fail returns the outcome of a resource that could not be fetched. before is its
// earlier failure, if any.
func (d *Directory) fail(e feed.Entry, before *ledger.Failure, f *fetch.Failure) outcome {
	now := time.Now()
	next := ledger.Failure{Loc: e.Change.Loc, Entry: e, Reason: f.Error(), Since: now, Tries: 1}
	if before != nil && before.Entry.Cursor == e.Cursor {
		next.Since, next.Tries = before.Since, before.Tries+1
	}
	pause := backoff.Doubled(d.opts.Pause, d.opts.MostPause, next.Tries-1)
	next.Next = now.Add(max(backoff.Jitter(pause), f.After))
	return outcome{failure: &next, deed: Deed{Kind: Failed, Err: f}}
}

// remove removes the files of resources, unless they are too many.
func (d *Directory) remove(ctx context.Context, gone []feed.Entry) error {
	d.removing.Lock()
	defer d.removing.Unlock()
	var held []string
	defer func() {
		for _, loc := range held {
			d.release(loc)
		}
	}()
	var b ledger.Batch
	var files, paths []string // the locs of files that are there, and paths where files may be
	for i := range gone {
		loc := gone[i].Change.Loc
		if err := d.hold(ctx, loc); err != nil {
			return err
		}
		held = append(held, loc)
		name, placed, err := d.home.Ledger.Path(loc)
		if err != nil {
			return err
		}
		if placed {
			b.Remove(loc)
			paths = append(paths, name)
			if info, err := d.home.Root.Lstat(name); err == nil && !info.IsDir() { // also without a record
				files = append(files, loc)
			}
		}
		if _, ok, err := d.home.Ledger.Failure(loc); err != nil {
			return err
		} else if ok {
			b.Remove(loc)
		}
	}
	if b.Empty() {
		return nil
	}
	t, err := d.toll(uint64(len(files)))
	if err != nil {
		return err
	}
	b.Meta("deletions", t)
	dirs := map[string]bool{}
	for _, name := range paths {
		if err := d.unlink(name); err != nil {
			return err
		}
		dirs[path.Dir(name)] = true
	}
	if err := d.syncDirs(dirs); err != nil { // or a crash of the machine brings back a file that no record has
		return err
	}
	for dir := range dirs {
		d.prune(dir)
	}
	if err := d.home.Ledger.Commit(&b); err != nil {
		return err
	}
	for _, loc := range files {
		d.opts.Did(Deed{Kind: Removed, Loc: loc})
	}
	return nil
}

// mayDelete returns a *reconcile.TooMany if n resources must not be deleted now.
func (d *Directory) mayDelete(n, _ uint64) error {
	_, err := d.toll(n)
	return err
}

// toll returns the toll of the day with n more deletions. It returns an error if they are
// too many.
func (d *Directory) toll(n uint64) (t reconcile.Toll, err error) {
	if _, err := d.home.Ledger.Meta("deletions", &t); err != nil {
		return t, err
	}
	held, now := uint64(d.home.Ledger.Counts().Files), time.Now()
	if err := t.Check(d.opts.MaxDelete, n, held, max(held, 1), now); err != nil {
		return t, err
	}
	t.Count(d.opts.MaxDelete, n, held, now)
	return t, nil
}

// unlink removes a file. It returns nil if there is no file, if the path is a directory,
// which belongs to no resource, or if a foreign link leads the path out of the mirror.
func (d *Directory) unlink(name string) error {
	info, err := d.home.Root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = d.home.Root.Remove(name)
	}
	if absent(err) {
		return nil
	}
	return err
}

// absent reports whether an error of os.Root says that a mirror has no file at a path: there is
// none, or something foreign is in the place of a directory: a file, or a link that leads out.
func absent(err error) bool {
	_, system := errors.AsType[syscall.Errno](err) // Root itself refuses a path that leads out
	return err != nil && !system || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// prune removes a directory and those above it, as long as they are empty. A foreign file or
// link in the place of a directory stays.
func (d *Directory) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		info, err := d.home.Root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() || d.home.Root.Remove(dir) != nil {
			return
		}
	}
}
