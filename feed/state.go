package feed

import (
	"encoding/json"
	"time"
)

// A Description holds the properties of a set that its source sets.
type Description struct {
	Title       string `json:"title,omitempty"`
	DescribedBy string `json:"describedby,omitempty"` // URI of a document about the set
	ChangeList  string `json:"changelist,omitempty"`  // URL of the source's own Change List or Change List Index; not in any document

	// URLs of the source's own documents. The hub advertises them if it has none itself.
	ResourceList string `json:"resourcelist,omitempty"` // Resource List or Resource List Index
	ResourceDump string `json:"resourcedump,omitempty"`
	ChangeDump   string `json:"changedump,omitempty"`

	NoInventory bool `json:"noInventory,omitempty"` // whether the source wants no inventory of the set
	Private     bool `json:"private,omitempty"`     // whether rights that anyone has do not apply to the set

	Lastmod Lastmod `json:"lastmod,omitempty"` // lastmod of entries in Change Lists and Resource Lists
	NoPush  bool    `json:"noPush,omitempty"`  // whether the Capability List omits the push channel, which some clients reject
	Sitemap bool    `json:"sitemap,omitempty"` // whether robots.txt names the hub's Resource List of the set

	Framework bool `json:"framework,omitempty"` // whether the hub publishes changes of the set's documents in FrameworkSet(set)

	// URL of a search engine that is notified of changes, with the parameters key and keyLocation;
	// empty if there is none. It is not in any document.
	IndexNow string `json:"indexnow,omitempty"`

	Source string        `json:"source,omitempty"` // URL of a list of the set's resources that the hub polls; not in any document
	Every  time.Duration `json:"every,omitempty"`  // polling interval; zero if Source is empty

	CloudEvents RawJSON `json:"cloudevents,omitempty"` // mapping of the source's events, see docs/cloudevents.md; not in any document

	By string `json:"by,omitempty"` // name of the caller that created the set; empty if it had no token; not in any document
}

// A RawJSON is a JSON value that can be compared with ==. It is normalized as encoding/json writes
// it, without white space. Empty means no value.
type RawJSON string

// MarshalJSON returns the value, or null if r is empty.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return []byte(r), nil
}

// UnmarshalJSON sets r to the value. null makes it empty.
func (r *RawJSON) UnmarshalJSON(value []byte) error {
	text, err := json.Marshal(json.RawMessage(value))
	if *r = RawJSON(text); *r == "null" {
		*r = ""
	}
	return err
}

// A State describes a set at one moment.
type State struct {
	Set string
	Description
	ListSize int   // number of entries in a closed Change List
	Begin    int64 // datetime at which the log started, in microseconds since 1970
	// Newest datetime of a deleted set of the same name, in microseconds since 1970, if it is not
	// before Begin, because entries of that set were in the future; otherwise zero.
	PriorMicros  int64
	Floor        Cursor // cursor of the newest entry that retention removed; at first, position 0 and Begin
	Head         Cursor // cursor of the newest entry; equal to Floor if there is none
	BeforeLatest Cursor // cursor before the newest batch; equal to Head if there is none
}

// Lists returns the number of the oldest Change List that still has an entry, and the number of the
// newest, which is open. List n holds the positions (n-1)·ListSize+1 to n·ListSize.
func (s State) Lists() (oldest, open uint64) {
	k := uint64(s.ListSize)
	return s.Floor.Position/k + 1, s.Head.Position/k + 1
}

// Len returns the number of entries in the log.
func (s State) Len() uint64 { return s.Head.Position - s.Floor.Position }
