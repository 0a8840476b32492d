package feed

import (
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Filter selects changes. A change matches if it matches every field that is set, so the zero
// Filter matches all changes. Two filters are equal if their Keys are.
type Filter struct {
	Prefix  string                    // prefix of the loc
	Changes []resourcesync.ChangeType // accepted types of change
	Types   []string                  // accepted media types; "text/*" accepts all text types

	// URI of a collection. A change matches if it has a link rel=collection to it (core section
	// 14.7), or if it is a deletion, which may not name its collections. An update that removes a
	// resource from the collection does not match.
	Collection string
}

// FilterParameters are the names of the query parameters of a filter. The slice must not be
// modified.
var FilterParameters = []string{"prefix", "change", "type", "collection"}

// ParseFilter parses the query parameters in FilterParameters. change and type may have several
// values, as repeated parameters or separated by commas. An error is a *resourcesync.Error with
// ErrInvalid, whose Rule starts with the name of the parameter.
func ParseFilter(q url.Values) (Filter, error) {
	f := Filter{Prefix: q.Get("prefix")}
	switch n := len(f.Prefix); {
	case len(q["prefix"]) > 1:
		return f, resourcesync.Invalidf("prefix is given more than once; want one value")
	case n > 2048:
		return f, resourcesync.Invalidf("prefix has %d bytes, want at most 2,048, the maximum of a loc", n)
	}
	for _, s := range listValues(q, "change") {
		switch c := resourcesync.ChangeType(s); c {
		case resourcesync.Created, resourcesync.Updated, resourcesync.Deleted:
			f.Changes = append(f.Changes, c)
		default:
			return f, resourcesync.Invalidf("change=%s: want created, updated or deleted", resourcesync.Shorten(s))
		}
	}
	for _, s := range listValues(q, "type") {
		// A plus sign in a query, as in image/svg+xml, is decoded to a space unless the
		// client escaped it.
		t, params, err := mime.ParseMediaType(strings.ReplaceAll(s, " ", "+"))
		if err != nil || len(params) > 0 || !strings.Contains(t, "/") || strings.Contains(strings.TrimSuffix(t, "/*"), "*") || len(t) > 255 {
			return f, resourcesync.Invalidf("type=%s: want a media type without parameters, such as text/html or text/*", resourcesync.Shorten(s))
		}
		f.Types = append(f.Types, t)
	}
	if f.Collection = q.Get("collection"); len(q["collection"]) > 1 {
		return f, resourcesync.Invalidf("collection is given more than once; want one value")
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

// listValues returns all values of a parameter. It splits them at commas and trims spaces.
func listValues(q url.Values, name string) []string {
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

// IsZero reports whether f matches all changes.
func (f Filter) IsZero() bool {
	return f.Prefix == "" && len(f.Changes) == 0 && len(f.Types) == 0 && f.Collection == ""
}

// Values returns the query parameters of f. ParseFilter converts them back to an equal Filter.
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

// Key returns a string that is equal for equal filters and differs for others. It is empty for the
// zero Filter.
func (f Filter) Key() string { return f.Values().Encode() }

// Match reports whether c matches f.
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

// matchType reports whether the media type got matches want, which may end in "/*". It ignores
// letter case and the parameters of got.
func matchType(want, got string) bool {
	got, _, _ = strings.Cut(got, ";")
	got = strings.TrimSpace(got)
	if prefix, ok := strings.CutSuffix(want, "*"); ok {
		return len(got) > len(prefix) && strings.EqualFold(got[:len(prefix)], prefix)
	}
	return strings.EqualFold(want, got)
}

// Apply returns a batch with the entries of b that match. After and Cursor are unchanged, so that
// a follower's cursor advances past the entries that its filter omits. The zero Filter returns b
// itself, with its cached encodings.
func (f Filter) Apply(b *Batch) *Batch {
	if f.IsZero() {
		return b
	}
	filtered := &Batch{Set: b.Set, After: b.After, Cursor: b.Cursor, Diverged: b.Diverged}
	for i := range b.Entries {
		if f.Match(&b.Entries[i].Change) {
			filtered.Entries = append(filtered.Entries, b.Entries[i])
		}
	}
	return filtered
}
