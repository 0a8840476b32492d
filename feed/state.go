package feed

import (
	"encoding/json"
	"time"
)

// A Description is what a source says about a set.
type Description struct {
	Title       string `json:"title,omitempty"`
	DescribedBy string `json:"describedby,omitempty"` // URI of a document about the set
	ChangeList  string `json:"changelist,omitempty"`  // URL of the source's own Change List, or of an index of several; no document shows it

	// URLs of the source's own documents. They are shown where the hub has none of its own.
	ResourceList string `json:"resourcelist,omitempty"` // a Resource List, or an index of several
	ResourceDump string `json:"resourcedump,omitempty"`
	ChangeDump   string `json:"changedump,omitempty"`

	NoInventory bool `json:"noInventory,omitempty"` // the source wants no inventory of the set
	Private     bool `json:"private,omitempty"`     // what anyone may do does not count for the set

	Lastmod Lastmod `json:"lastmod,omitempty"` // of the entries of Change Lists and Resource Lists
	NoPush  bool    `json:"noPush,omitempty"`  // the Capability List does not name the push channel: some clients refuse a list that does
	Sitemap bool    `json:"sitemap,omitempty"` // robots.txt names the hub's Resource List of the set

	Framework bool `json:"framework,omitempty"` // the hub announces what changes in the set's documents, in the set Framework(set)

	// IndexNow is the URL of a search engine that is told of changes, with the parameters key and
	// keyLocation; empty: none. No document shows it.
	IndexNow string `json:"indexnow,omitempty"`

	Source string        `json:"source,omitempty"` // URL of a list of the set's resources that the hub polls; no document shows it
	Every  time.Duration `json:"every,omitempty"`  // how often; 0 if there is no Source

	CloudEvents RawJSON `json:"cloudevents,omitempty"` // what the events of the source mean, see docs/cloudevents.md; no document shows it

	By string `json:"by,omitempty"` // name of the caller who made the set; empty: one without a token. No document shows it
}

// A RawJSON is a value in JSON that can be compared: it is as encoding/json writes it, without
// white space. Empty: there is none.
type RawJSON string

// MarshalJSON returns the value, or null.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return []byte(r), nil
}

// UnmarshalJSON keeps the value. That of null is empty.
func (r *RawJSON) UnmarshalJSON(value []byte) error {
	text, err := json.Marshal(json.RawMessage(value))
	if *r = RawJSON(text); *r == "null" {
		*r = ""
	}
	return err
}

// A State is what a set is at one moment.
type State struct {
	Set string
	Description
	ListSize int    // K, the number of entries in a closed Change List
	Begin    int64  // when the log began, in microseconds since 1970
	Was      int64  // the latest datetime that an entry of a deleted set of this name had, if not before Begin; else 0. Such a set had entries in the future
	Floor    Cursor // the newest entry that retention removed; before that, position 0 and Begin
	Head     Cursor // the newest entry; equal to Floor when there is none
	Latest   Cursor // the cursor before the newest batch; equal to Head when there is none
}

// Lists returns the number of the oldest Change List of which an entry is kept,
// and the number of the newest list, which is open. List n holds the positions
// (n-1)·K+1 to n·K.
func (s State) Lists() (oldest, open uint64) {
	k := uint64(s.ListSize)
	return s.Floor.Position/k + 1, s.Head.Position/k + 1
}

// Len returns how many entries are kept.
func (s State) Len() uint64 { return s.Head.Position - s.Floor.Position }
