package trial

// A Report is what one callback of the program internal/callbacks has taken.
type Report struct {
	Verified   int      // verifications that were confirmed
	Denied     int      // denials
	Deliveries int      // that were taken
	Entries    int      // in them, without repeats
	Position   uint64   // of the last one
	Digest     string   // of the positions and locs, in the order they came, without repeats
	Repeats    int      // deliveries that held what was taken before
	Gaps       []string // RS-Gap, as it was told
	Faults     []string // what should not be
}
