package feed

// A Problem is a problem document (RFC 9457): the response of a hub to a request that failed.
type Problem struct {
	Type   string `json:"type"` // URI below resourcesync.Terms that identifies the problem to programs
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Entry  int    `json:"entry,omitempty"` // index of the invalid entry in the batch, from 1
	Line   int    `json:"line,omitempty"`  // number of the invalid line of input, from 1
	Loc    string `json:"loc,omitempty"`   // loc of the invalid entry

	// All errors in the batch including the first, up to resourcesync.MaxErrors; empty if there is
	// only one. Detail describes them, too.
	Errors []EntryError `json:"errors,omitempty"`

	RequestID string `json:"requestId,omitempty"` // X-Request-Id of the response; the hub logs it

	// Part of an NDJSON stream that the hub accepted before the error; nil for other requests.
	Accepted *Progress `json:"accepted,omitempty"`

	RetryAfter int                 `json:"-"` // Retry-After in seconds; zero if there is none
	Header     map[string][]string `json:"-"` // further header fields of the response; nil on the client
	Err        error               `json:"-"` // on the hub, the cause, for the log; on the client, the *Error that Type names, or nil
}

// An EntryError is one of several errors in a batch. Its fields are as in Problem.
type EntryError struct {
	Entry  int    `json:"entry,omitempty"`
	Line   int    `json:"line,omitempty"`
	Loc    string `json:"loc,omitempty"`
	Detail string `json:"detail"`
}

// Progress reports how much of an NDJSON stream the hub has accepted.
type Progress struct {
	Count  int    `json:"count"`            // number of changes
	Line   int    `json:"line"`             // number of the last accepted line
	Cursor string `json:"cursor,omitempty"` // cursor of the last accepted entry, or empty
}

// Error returns a description for logs: the title, and Err or else the detail.
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
