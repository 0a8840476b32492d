package feed

// A Receipt is the hub's answer to a publish, as JSON.
type Receipt struct {
	Set      string `json:"set"`
	First    string `json:"first"`  // cursor of the first entry
	Cursor   string `json:"cursor"` // cursor of the last entry
	Count    int    `json:"count"`
	Line     int    `json:"line,omitempty"`     // for an NDJSON stream, the last line that was accepted
	Replayed bool   `json:"replayed,omitempty"` // the memory had all of it already
}

// NewReceipt returns the receipt of one publish of count entries, of which the
// last is at last. Each entry is one position and one microsecond after the one
// before.
func NewReceipt(set string, last Cursor, count int, replayed bool) *Receipt {
	first := Cursor{Position: last.Position - uint64(count-1), Micros: last.Micros - int64(count-1)}
	return &Receipt{Set: set, First: first.String(), Cursor: last.String(), Count: count, Replayed: replayed}
}

// Add makes r the receipt of everything up to next, the publish that ends with
// the given line of a stream. It changes next.
func (r *Receipt) Add(next *Receipt, line int) {
	if r.Count > 0 {
		next.First = r.First
		next.Count += r.Count
		next.Replayed = next.Replayed && r.Replayed
	}
	*r = *next
	r.Line = line
}
