package trail

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"
	"unicode"
)

const timeForm = "2006-01-02T15:04:05.000000Z"

// An entry is a line of the log. Texts from a client can neither break the line nor harm a
// terminal.
type entry struct {
	Time         string     `json:"time"`
	RequestID    string     `json:"requestId,omitempty"`
	Caller       string     `json:"caller,omitempty"`
	Client       netip.Addr `json:"client,omitzero"`
	Action       Action     `json:"action"`
	Set          string     `json:"set,omitempty"`
	Sets         int        `json:"sets,omitempty"`
	Changes      uint64     `json:"changes,omitempty"`
	Cursor       string     `json:"cursor,omitempty"`
	Replayed     bool       `json:"replayed,omitempty"`
	Subscription string     `json:"subscription,omitempty"`
	Callback     string     `json:"callback,omitempty"`
	Method       string     `json:"method,omitempty"`
	Path         string     `json:"path,omitempty"`
	Status       int        `json:"status,omitempty"`
	Outcome      string     `json:"outcome"`
	Count        uint64     `json:"count,omitempty"`
}

// append appends the line of r.
func (r *Record) append(b []byte) []byte {
	e := entry{
		Time: r.at.UTC().Format(timeForm), RequestID: r.RequestID, Caller: sanitize(r.Caller), Client: r.Client, Action: r.Action, Set: sanitize(r.Set),
		Sets: r.Sets, Changes: r.Changes, Replayed: r.Replayed, Subscription: r.Subscription, Callback: sanitize(r.Callback),
		Status: r.status, Outcome: r.outcome(), Count: r.count,
	}
	if !r.Cursor.IsZero() {
		e.Cursor = r.Cursor.String()
	}
	if r.Action == "" {
		e.Action, e.Method, e.Path = Request, sanitize(r.Method), sanitize(r.Path)
	}
	return e.append(b)
}

// appendLostLine appends a line with the number of lines that are missing before it.
func appendLostLine(b []byte, at time.Time, n uint64) []byte {
	return (&entry{Time: at.UTC().Format(timeForm), Action: "lost", Outcome: "lost", Count: n}).append(b)
}

func (e *entry) append(b []byte) []byte {
	text, _ := json.Marshal(e) // cannot fail for these types
	return append(append(b, text...), '\n')
}

// maxText is the maximum length of a text from a client in bytes.
const maxText = 256

// sanitize returns a text from a client without unprintable characters and with bounded length.
func sanitize(text string) string {
	bad := func(c rune) bool { return !unicode.IsPrint(c) }
	if len(text) <= maxText && !strings.ContainsFunc(text, bad) {
		return text
	}
	text = strings.Map(func(c rune) rune {
		if bad(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text[:min(len(text), maxText)])
	return text
}
