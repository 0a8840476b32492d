package archive

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// A file says what a file in the place is like.
type file struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hex
}

// A keptResources is a Resource List in the place.
type keptResources struct {
	Log       string      `json:"log"`             // the log and epoch of the newest change that the list knows
	Whole     bool        `json:"whole,omitempty"` // it is in whole seconds
	At        feed.Cursor `json:"at"`
	Completed int64       `json:"completed"` // in microseconds since 1970
	Files     []file      `json:"files"`     // itself; or its index, and then its parts
}

// name returns the name of document n, and of its URL. It never means another document.
func (k *keptResources) name(n int) string {
	name := "resourcelist-" + k.Log + "-" + k.At.String()
	if n > 0 {
		name += "-" + strconv.Itoa(n)
	}
	if k.Whole {
		name += "-seconds"
	}
	return name + ".xml"
}

// listOf returns the number of the Change List with the change at a position.
func listOf(st *feed.State, position uint64) uint64 {
	return (max(position, 1)-1)/uint64(st.ListSize) + 1
}

// resources copies the newest Resource List of a set, if it is time for one. A failure is noted,
// and is no error: nothing waits for it, and the next look tries again.
func (a *Archive) resources(ctx context.Context, st *feed.State, rec *record) (*record, error) {
	l, err := a.opts.Resources(ctx, *st)
	if err == nil && (l == nil || !rec.due(l, a.opts.Every)) {
		return rec, nil
	}
	var k keptResources
	if err == nil {
		k, err = a.copyResources(ctx, st, l)
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, errChanged):
		return nil, err
	case err != nil:
		a.metrics.failed.Inc()
		a.opts.Logger.Warn("a Resource List cannot be archived now", "set", st.Set, "err", err)
		return rec, nil
	}
	if rec, err = a.keep(ctx, st.Set, rec.withResources(k)); err != nil {
		return nil, err
	}
	a.metrics.resources.Inc()
	a.opts.Logger.Info("a Resource List was archived", "set", st.Set, "cursor", k.At.String(), "documents", len(k.Files))
	return rec, nil
}

// copyResources copies the documents of a Resource List into the place. Until a record names them
// they are nothing: a hub that is killed leaves files that sweep removes, or the next one replaces.
func (a *Archive) copyResources(ctx context.Context, st *feed.State, l *ResourceList) (keptResources, error) {
	k := keptResources{Log: listLog(st, listOf(st, l.At.Position)), Whole: st.WholeSeconds, At: l.At, Completed: l.Completed.UnixMicro()}
	loc := func(n int) string { return a.base.Archived(st.Set, k.name(n)) }
	for n := range l.Documents {
		f, err := a.put(ctx, dirOf(st.Set)+k.name(n), func(w io.Writer) error { return l.Write(ctx, w, n, loc) })
		if err != nil {
			return k, err
		}
		k.Files = append(k.Files, f)
	}
	now, err := a.log.State(ctx, st.Set)
	if err == nil && (now.Begin != st.Begin || !now.Archives || listLog(&now, listOf(&now, k.At.Position)) != k.Log) {
		err = errChanged
	}
	return k, err
}

// due reports whether a Resource List is to be archived.
func (r *record) due(l *ResourceList, every time.Duration) bool {
	n := len(r.Resources)
	if n == 0 {
		return true
	}
	last := &r.Resources[n-1]
	return l.At.Position > last.At.Position && l.Completed.Sub(time.UnixMicro(last.Completed)) >= every
}

// withResources returns the record with one Resource List more.
func (r *record) withResources(k keptResources) *record {
	return &record{Begin: r.Begin, Lists: r.Lists, Resources: append(r.Resources[:len(r.Resources):len(r.Resources)], k)}
}

// fitting returns the Resource Lists that belong to what the log of a set has. One that knew
// changes which the log has lost is void, and so are those behind it.
func (r *record) fitting(st *feed.State) []keptResources {
	oldest, _ := st.Lists()
	for i := range r.Resources {
		k := &r.Resources[i]
		if n := listOf(st, k.At.Position); n >= oldest && (k.At.Position > st.Head.Position || k.Log != listLog(st, n)) {
			return r.Resources[:i:i]
		}
	}
	return r.Resources
}

// file returns the file of a name, if it is of a list of the record.
func (r *record) file(name string) (f file, ok bool) {
	if k, ok := r.find(name); ok {
		return file{k.Size, k.SHA256}, true
	}
	rest, ok := strings.CutPrefix(name, "resourcelist-")
	words := strings.Split(strings.TrimSuffix(strings.TrimSuffix(rest, ".xml"), "-seconds"), "-")
	if !ok || len(words) < 3 || len(words) > 4 {
		return f, false
	}
	position, err := strconv.ParseUint(words[1], 10, 64)
	i, ok := slices.BinarySearchFunc(r.Resources, position, func(k keptResources, position uint64) int {
		switch {
		case k.At.Position < position:
			return -1
		case k.At.Position > position:
			return 1
		}
		return 0
	})
	n := 0
	if len(words) == 4 && err == nil {
		n, err = strconv.Atoi(words[3])
	}
	if !ok || err != nil || n < 0 || n >= len(r.Resources[i].Files) || r.Resources[i].name(n) != name {
		return f, false
	}
	return r.Resources[i].Files[n], true
}
