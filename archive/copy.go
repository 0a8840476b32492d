package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
)

// work copies the Change Lists of a set that are closed by now, or removes the archive of a set
// that wants none any more.
func (a *Archive) work(ctx context.Context, st *feed.State, j *job) error {
	if !st.Archives {
		return a.remove(ctx, st.Set)
	}
	rec, err := readRecord(ctx, a.place, st.Set)
	if err != nil {
		return err
	}
	rec = rec.fits(st)
	_, open := st.Lists()
	for range atOnce {
		n := max(rec.next(), wholeLists(st))
		if n > rec.next() {
			if rec, err = a.adopt(ctx, st, rec, n); err != nil {
				return err
			}
		}
		if j.next = n; n >= open {
			break
		}
		k, err := a.copy(ctx, st, n)
		if err != nil {
			return fmt.Errorf("archive Change List %d: %w", n, err)
		}
		if last := len(rec.Lists); last > 0 && rec.Lists[last-1].At != k.From {
			a.metrics.holes.Inc()
			a.opts.Logger.Error("the archive of a set has a hole: retention did not wait any more", "set", st.Set, "after", rec.Lists[last-1].At.String(), "until", k.From.String())
		}
		if rec, err = a.keep(ctx, st.Set, rec.with(k)); err != nil {
			return err
		}
		a.metrics.lists.Inc()
		a.opts.Logger.Info("a Change List was archived", "set", st.Set, "list", n, "bytes", k.Size)
		j.next = n + 1
	}
	j.begin, j.epochs = st.Begin, st.Epochs
	if a.looks(j) {
		if rec, err = a.resources(ctx, st, rec); err != nil {
			return err
		}
		j.looked, j.bare = time.Now(), len(rec.Resources) == 0
	}
	if time.Since(j.swept) >= a.opts.Grace {
		if err := a.sweep(ctx, st.Set, rec); err != nil {
			return err
		}
		j.swept = time.Now()
	}
	return nil
}

// copy copies a closed Change List into the place.
func (a *Archive) copy(ctx context.Context, st *feed.State, n uint64) (k kept, err error) {
	if k, err = a.identify(ctx, st, n); err != nil {
		return k, err
	}
	f, err := a.put(ctx, dirOf(st.Set)+k.name(), func(w io.Writer) error {
		if err := a.opts.Write(ctx, w, *st, n); err != nil {
			return err
		}
		now, err := a.log.State(ctx, st.Set)
		if err != nil {
			return err
		}
		if now.Begin != st.Begin || !now.Archives || listLog(&now, n) != k.Log {
			return errChanged
		}
		if again, err := a.identify(ctx, st, n); err != nil || again != k {
			return errors.Join(err, errChanged)
		}
		return nil
	})
	k.Size, k.SHA256 = f.Size, f.SHA256
	return k, err
}

// put writes a file into the place. It is there only if write returns no error.
func (a *Archive) put(ctx context.Context, name string, write func(io.Writer) error) (f file, err error) {
	w, err := a.place.Create(ctx, name)
	if err != nil {
		return f, err
	}
	defer w.Abort()
	counted := &counter{to: w, sum: sha256.New()}
	if err := write(counted); err != nil {
		return f, err
	}
	return file{counted.size, hex.EncodeToString(counted.sum.Sum(nil))}, w.Commit()
}

// identify returns what a list is, all but its bytes.
func (a *Archive) identify(ctx context.Context, st *feed.State, n uint64) (k kept, err error) {
	size := uint64(st.ListSize)
	k = kept{Number: n, Log: listLog(st, n), Whole: st.WholeSeconds}
	if k.From, err = a.log.At(ctx, st.Set, (n-1)*size); err != nil {
		return k, fmt.Errorf("the entry at position %d: %w", (n-1)*size, err)
	}
	if k.At, err = a.log.At(ctx, st.Set, n*size); err != nil {
		return k, fmt.Errorf("the entry at position %d: %w", n*size, err)
	}
	return k, nil
}

// A counter counts and hashes what is written.
type counter struct {
	to   io.Writer
	size int64
	sum  hash.Hash
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.size += int64(n)
	_, _ = c.sum.Write(b[:n]) // a hash does not fail
	return n, err
}

// adopt returns the record with the lists before list n that the place has and the record does
// not name: a hub that had lost the claim may have replaced a newer record. The lists are not
// in the memory any more.
func (a *Archive) adopt(ctx context.Context, st *feed.State, rec *record, n uint64) (*record, error) {
	var found []kept
	for f, err := range a.place.List(ctx, dirOf(st.Set)) {
		if err != nil {
			return nil, err
		}
		k, ok := parseName(strings.TrimPrefix(f.Name, dirOf(st.Set)))
		begin, _, _ := strings.Cut(k.Log, ".")
		if ok && begin == listLog(&feed.State{Begin: st.Begin}, 0) && k.Number >= rec.next() && k.Number < n {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b kept) int { return int(a.Number) - int(b.Number) }) // there are never so many that it matters
	for _, k := range found {
		if last := len(rec.Lists); last > 0 && rec.Lists[last-1].At != k.From {
			continue // it is of another epoch, or lies behind a hole
		}
		if err := a.read(ctx, st.Set, &k); err != nil {
			return nil, err
		}
		rec = rec.with(k)
		a.opts.Logger.Warn("the record of an archive did not name a list that is there; now it does", "set", st.Set, "list", k.Number)
	}
	return rec, nil
}

// read takes the size and the hash of a list from its file.
func (a *Archive) read(ctx context.Context, set string, k *kept) error {
	f, err := a.place.Open(ctx, dirOf(set)+k.name())
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if k.Size, err = io.Copy(sum, f); err != nil {
		return fmt.Errorf("read %s: %w", k.name(), err)
	}
	k.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// keep makes a record what the archive of a set has, if this hub still makes it.
func (a *Archive) keep(ctx context.Context, set string, rec *record) (*record, error) {
	if !a.opts.Mine(set) {
		return nil, errNotMine
	}
	if err := writeRecord(ctx, a.place, set, rec); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.views[set] = view{rec, time.Now()}
	return rec, nil
}

// sweep removes files of a set that its archive does not name. Young files may be those of
// another hub.
func (a *Archive) sweep(ctx context.Context, set string, rec *record) error {
	before := time.Now().Add(-a.opts.Grace)
	return a.removeFiles(ctx, dirOf(set), func(f place.Info) bool {
		name := strings.TrimPrefix(f.Name, dirOf(set))
		_, ok := rec.file(name)
		return !ok && name != recordName && f.Changed.Before(before)
	})
}

// remove removes the archive of a set. The record goes first: from then on nothing is served.
func (a *Archive) remove(ctx context.Context, set string) error {
	if err := a.place.Remove(ctx, dirOf(set)+recordName); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.views, set)
	a.mu.Unlock()
	return a.removeFiles(ctx, dirOf(set), func(place.Info) bool { return true })
}

func (a *Archive) removeFiles(ctx context.Context, prefix string, which func(place.Info) bool) error {
	var errs []error
	for f, err := range a.place.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if which(f) {
			errs = append(errs, a.place.Remove(ctx, f.Name))
		}
	}
	return errors.Join(errs...)
}

// clean removes the archives of sets that are gone, or want none any more, of those sets whose
// archives this hub would make. It does so at the second look that finds a set so: a memory
// that is not right for a moment must not cost what nobody can make again.
func (a *Archive) clean(ctx context.Context, states []feed.State) error {
	wanted, orphans := map[string]bool{}, map[string]bool{}
	for i := range states {
		wanted[states[i].Set] = states[i].Archives
	}
	before := time.Now().Add(-a.opts.Grace)
	err := a.removeFiles(ctx, root, func(f place.Info) bool {
		set, _, ok := strings.Cut(strings.TrimPrefix(f.Name, root), "/")
		if !ok || wanted[set] || feed.CheckSet(set) != nil || !a.opts.Mine(set) {
			return false
		}
		orphans[set] = true
		return a.orphans[set] && f.Changed.Before(before)
	})
	a.orphans = orphans
	return err
}
