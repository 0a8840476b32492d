package feed

import (
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Filter chooses changes. A change passes when it fits every field that is
// set, so the zero Filter lets everything pass. Two filters are equal when
// their Keys are.
type Filter struct {
	Prefix  string                    // the change's loc begins with it
	Changes []resourcesync.ChangeType // the change is one of these
	Types   []string                  // the media type is one of these; "text/*" means all of text

	// Collection is the URI of a collection: the change has a link rel=collection to it (core
	// section 14.7), or it is a deletion, which may name none. An update that takes a resource
	// out of the collection does not pass.
	Collection string
}

// FilterParameters are the parameters of a filter.
var FilterParameters = []string{"prefix", "change", "type", "collection"}

// ParseFilter reads FilterParameters. Change and type may have several values, repeated or separated by commas. An error is a
// *resourcesync.Error with ErrInvalid, whose Rule begins with the parameter's
// name.
func ParseFilter(q url.Values) (Filter, error) {
	f := Filter{Prefix: q.Get("prefix")}
	switch n := len(f.Prefix); {
	case len(q["prefix"]) > 1:
		return f, resourcesync.Invalid("prefix is given twice; it has only one value")
	case n > 2048:
		return f, resourcesync.Invalid("prefix has %d bytes; a loc has at most 2,048", n)
	}
	for _, s := range values(q, "change") {
		switch c := resourcesync.ChangeType(s); c {
		case resourcesync.Created, resourcesync.Updated, resourcesync.Deleted:
			f.Changes = append(f.Changes, c)
		default:
			return f, resourcesync.Invalid("change=%s: a change is created, updated or deleted", resourcesync.Shorten(s))
		}
	}
	for _, s := range values(q, "type") {
		// A plus sign in a URL arrives as a space unless the client escaped it,
		// as in image/svg+xml.
		t, params, err := mime.ParseMediaType(strings.ReplaceAll(s, " ", "+"))
		if err != nil || len(params) > 0 || !strings.Contains(t, "/") || strings.Contains(strings.TrimSuffix(t, "/*"), "*") || len(t) > 255 {
			return f, resourcesync.Invalid("type=%s: a type is a media type such as text/html, or text/*, without parameters", resourcesync.Shorten(s))
		}
		f.Types = append(f.Types, t)
	}
	if f.Collection = q.Get("collection"); len(q["collection"]) > 1 {
		return f, resourcesync.Invalid("collection is given twice; it has only one value")
	}
	if f.Collection != "" {
		if err := resourcesync.CheckURI("collection", f.Collection); err != nil {
			return f, err
		}
	}
	slices.Sort(f.Changes)
	slices.Sort(f.Types)
	f.Changes, f.Types = slices.Compact(f.Changes), slices.Compact(f.Types)
	return f, nil
}

// values returns all values of a parameter, without the commas and the spaces
// around them.
func values(q url.Values, name string) []string {
	var all []string
	for _, v := range q[name] {
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

// IsZero reports whether everything passes.
func (f Filter) IsZero() bool {
	return f.Prefix == "" && len(f.Changes) == 0 && len(f.Types) == 0 && f.Collection == ""
}

// Values returns the parameters from which ParseFilter makes the same Filter.
func (f Filter) Values() url.Values {
	q := url.Values{}
	if f.Prefix != "" {
		q.Set("prefix", f.Prefix)
	}
	for _, c := range f.Changes {
		q.Add("change", string(c))
	}
	if len(f.Types) > 0 {
		q["type"] = f.Types
	}
	if f.Collection != "" {
		q.Set("collection", f.Collection)
	}
	return q
}

// Key returns a text that is the same for equal filters. It is empty for the
// zero Filter.
func (f Filter) Key() string { return f.Values().Encode() }

// Match reports whether a change passes.
func (f Filter) Match(c *resourcesync.Change) bool {
	if !strings.HasPrefix(c.Loc, f.Prefix) {
		return false
	}
	if len(f.Changes) > 0 && !slices.Contains(f.Changes, c.Change) {
		return false
	}
	if len(f.Types) > 0 && !slices.ContainsFunc(f.Types, func(t string) bool { return matchType(t, c.Type) }) {
		return false
	}
	return f.Collection == "" || c.Change == resourcesync.Deleted || slices.ContainsFunc(c.Links, func(l resourcesync.Link) bool {
		return l.Rel == "collection" && l.Href == f.Collection
	})
}

// matchType reports whether a media type fits a wanted one. It ignores letter
// case and parameters.
func matchType(want, got string) bool {
	got, _, _ = strings.Cut(got, ";")
	got = strings.TrimSpace(got)
	if prefix, ok := strings.CutSuffix(want, "*"); ok {
		return len(got) > len(prefix) && strings.EqualFold(got[:len(prefix)], prefix)
	}
	return strings.EqualFold(want, got)
}

// Apply returns b without the entries that do not pass. After and Cursor stay,
// so a follower's cursor moves over the entries that its filter leaves out. The
// zero Filter returns b itself, which keeps its encodings.
func (f Filter) Apply(b *Batch) *Batch {
	if f.IsZero() {
		return b
	}
	cut := &Batch{Set: b.Set, After: b.After, Cursor: b.Cursor, Diverged: b.Diverged}
	for i := range b.Entries {
		if f.Match(&b.Entries[i].Change) {
			cut.Entries = append(cut.Entries, b.Entries[i])
		}
	}
	return cut
}
