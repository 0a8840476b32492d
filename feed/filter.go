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
	Tags    []string                  `json:",omitempty"` // it has at least one of these tags
	Rels    []string                  `json:",omitempty"` // it has at least one link with one of these relation types
}

// maxWords is how many tags a Filter has at most, and how many relation types.
const maxWords = 32

// ParseFilter reads the parameters prefix, change, type, tag and rel. All but the first may
// have several values, repeated or separated by commas. An error is a
// *resourcesync.Error with ErrInvalid, whose Rule begins with the parameter's
// name.
func ParseFilter(q url.Values) (Filter, error) {
	f := Filter{Prefix: q.Get("prefix")}
	switch n := len(f.Prefix); {
	case len(q["prefix"]) > 1:
		return f, resourcesync.Invalid("prefix is given twice, but can have only one value")
	case n > 2048:
		return f, resourcesync.Invalid("prefix has %d bytes, but a loc has at most 2,048", n)
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
	slices.Sort(f.Changes)
	slices.Sort(f.Types)
	f.Changes, f.Types = slices.Compact(f.Changes), slices.Compact(f.Types)
	var err error
	if f.Tags, err = words(q, "tag", resourcesync.CheckTag); err != nil {
		return f, err
	}
	f.Rels, err = words(q, "rel", resourcesync.CheckRel)
	return f, err
}

// words reads a parameter whose values are words, in order and each once. check returns the
// rule that a word breaks, or "".
func words(q url.Values, name string, check func(string) string) ([]string, error) {
	all := values(q, name)
	for _, s := range all {
		if rule := check(s); rule != "" {
			return nil, resourcesync.Invalid("%s=%s: %s", name, resourcesync.Shorten(s), rule)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > maxWords {
		return nil, resourcesync.Invalid("%s has %d values, but can have only %d", name, len(all), maxWords)
	}
	return all, nil
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
	return f.Prefix == "" && len(f.Changes) == 0 && len(f.Types) == 0 && len(f.Tags) == 0 && len(f.Rels) == 0
}

// Partial reports whether the filter leaves out changes of resources within its prefix. A
// destination that follows with such a filter does not hold what the set does.
func (f Filter) Partial() bool {
	every := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
	left := func(c resourcesync.ChangeType) bool { return !slices.Contains(f.Changes, c) }
	return len(f.Types) > 0 || len(f.Tags) > 0 || len(f.Rels) > 0 || len(f.Changes) > 0 && slices.ContainsFunc(every, left)
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
	if len(f.Tags) > 0 {
		q["tag"] = f.Tags
	}
	if len(f.Rels) > 0 {
		q["rel"] = f.Rels
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
	if len(f.Tags) > 0 && !slices.ContainsFunc(f.Tags, c.HasTag) {
		return false
	}
	if len(f.Rels) > 0 && !slices.ContainsFunc(f.Rels, c.HasRel) {
		return false
	}
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return matchType(t, c.Type) })
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
