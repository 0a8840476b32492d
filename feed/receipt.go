package feed

// A Receipt is the hub's response to a publish, as JSON.
type Receipt struct {
	Set      string `json:"set"`
	First    string `json:"first"`              // cursor of the first entry
	Cursor   string `json:"cursor"`             // cursor of the last entry
	Count    int    `json:"count"`              // number of entries
	Line     int    `json:"line,omitempty"`     // number of the last accepted line of an NDJSON stream; zero for other requests
	Replayed bool   `json:"replayed,omitempty"` // whether the change memory already had all of the changes
}

// NewReceipt returns the receipt of one publish of count entries that ends at last.
// Consecutive entries are one position and one microsecond apart.
func NewReceipt(set string, last Cursor, count int, replayed bool) *Receipt {
	first := Cursor{Position: last.Position - uint64(count-1), Micros: last.Micros - int64(count-1)}
	return &Receipt{Set: set, First: first.String(), Cursor: last.String(), Count: count, Replayed: replayed}
}

// Add extends r by next, the receipt of the following publish of the same NDJSON stream, which ends
// with the given line. It modifies next.
func (r *Receipt) Add(next *Receipt, line int) {
	if r.Count > 0 {
		next.First = r.First
		next.Count += r.Count
		next.Replayed = next.Replayed && r.Replayed
	}
	*r = *next
	r.Line = line
}
