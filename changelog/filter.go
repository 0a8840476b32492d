package changelog

import (
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Filter chooses changes. Its zero value lets everything pass; what is given
// must all fit. It is comparable by Key.
type Filter struct {
	Prefix  string                    // the loc begins with it
	Changes []resourcesync.ChangeType // one of them
	Types   []string                  // the media type is one of them; "text/*" is all of text
}

// ParseFilter reads the parameters prefix, change and type. The latter two may
// hold several values, separated by commas. An error is a *resourcesync.Error
// with ErrInvalid.
func ParseFilter(q url.Values) (Filter, error) {
	f := Filter{Prefix: q.Get("prefix")}
	switch n := len(f.Prefix); {
	case len(q["prefix"]) > 1:
		return f, Invalid("prefix is there twice; it has one value")
	case n > 2048:
		return f, Invalid("prefix has %d bytes; a loc has at most 2,048", n)
	}
	for _, s := range values(q, "change") {
		switch c := resourcesync.ChangeType(s); c {
		case resourcesync.Created, resourcesync.Updated, resourcesync.Deleted:
			f.Changes = append(f.Changes, c)
		default:
			return f, Invalid("change=%s: a change is created, updated or deleted", shorten(s))
		}
	}
	for _, s := range values(q, "type") {
		// A plus that was not escaped arrives as a space.
		t, params, err := mime.ParseMediaType(strings.ReplaceAll(s, " ", "+"))
		if err != nil || len(params) > 0 || !strings.Contains(t, "/") || strings.Contains(strings.TrimSuffix(t, "/*"), "*") || len(t) > 255 {
			return f, Invalid("type=%s: a type is a media type such as text/html, or text/*, without parameters", shorten(s))
		}
		f.Types = append(f.Types, t)
	}
	slices.Sort(f.Changes)
	slices.Sort(f.Types)
	f.Changes, f.Types = slices.Compact(f.Changes), slices.Compact(f.Types)
	return f, nil
}

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
func (f Filter) IsZero() bool { return f.Prefix == "" && len(f.Changes) == 0 && len(f.Types) == 0 }

// Values returns the parameters that ParseFilter reads to the same Filter.
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
	return q
}

// Key returns a text that is equal for equal filters, empty for the zero Filter.
func (f Filter) Key() string { return f.Values().Encode() }

// Match reports whether a change passes.
func (f Filter) Match(c *resourcesync.Change) bool {
	if !strings.HasPrefix(c.Loc, f.Prefix) {
		return false
	}
	if len(f.Changes) > 0 && !slices.Contains(f.Changes, c.Change) {
		return false
	}
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return matchType(t, c.Type) })
}

// matchType compares without letter case and without parameters.
func matchType(want, got string) bool {
	got, _, _ = strings.Cut(got, ";")
	got = strings.TrimSpace(got)
	if prefix, ok := strings.CutSuffix(want, "*"); ok {
		return len(got) > len(prefix) && strings.EqualFold(got[:len(prefix)], prefix)
	}
	return strings.EqualFold(want, got)
}

// Apply returns b without the entries that do not pass. After and Cursor stay:
// a filter moves the cursor over what it leaves out. The zero Filter returns b
// itself, with its encodings.
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
