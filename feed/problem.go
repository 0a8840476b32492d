package feed

// A Problem is an error as an HTTP client sees it (RFC 9457), and the answer of a hub to a
// request that it did not carry out.
type Problem struct {
	Type   string `json:"type"` // a URI under resourcesync.Terms, by which programs decide
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Entry  int    `json:"entry,omitempty"` // the entry of the batch that is wrong, from 1
	Line   int    `json:"line,omitempty"`  // the line of the input that is wrong, from 1
	Loc    string `json:"loc,omitempty"`   // the loc of that entry

	// Errors lists the mistakes in the batch if there is more than one, the first
	// included, up to resourcesync.MaxErrors. Detail has them, too.
	Errors []EntryError `json:"errors,omitempty"`

	RequestID string `json:"requestId,omitempty"` // the answer's X-Request-Id, which is in the log's lines too

	// Accepted says what an NDJSON stream had accepted before the error.
	Accepted *Accepted `json:"accepted,omitempty"`

	RetryAfter int                 `json:"-"` // seconds of the header Retry-After; 0 if there is none
	Header     map[string][]string `json:"-"` // further headers of the answer; nil at a client
	Err        error               `json:"-"` // at a hub the cause, for the log; at a client the *Error that Type names; or nil
}

// An EntryError is one of several things that are wrong in a batch.
type EntryError struct {
	Entry  int    `json:"entry,omitempty"`
	Line   int    `json:"line,omitempty"`
	Loc    string `json:"loc,omitempty"`
	Detail string `json:"detail"`
}

// Accepted says how much of a stream is in the change memory.
type Accepted struct {
	Count  int    `json:"count"`            // number of changes
	Line   int    `json:"line"`             // number of the last line that was accepted
	Cursor string `json:"cursor,omitempty"` // cursor of the last entry; empty when there is none
}

// Error returns the text for the log: the title, and what Err says. Without Err
// it is the title and the detail.
func (p *Problem) Error() string {
	switch {
	case p.Err != nil:
		return p.Title + ": " + p.Err.Error()
	case p.Detail != "":
		return p.Title + ": " + p.Detail
	}
	return p.Title
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }
