package trial

// A Report is the state of one callback of internal/callbacks.
type Report struct {
	Verified   int      // confirmed verifications
	Denied     int      // denials
	Deliveries int      // accepted deliveries
	Entries    int      // entries in them, without repeats
	Position   uint64   // position of the last entry
	Digest     string   // digest of the positions and locs in order of arrival, without repeats
	Repeats    int      // deliveries that started with known entries
	Gaps       []string // values of RS-Gap
	Faults     []string // violations of the protocol
}
