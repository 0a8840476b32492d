package trail

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"
	"unicode"
)

const timeForm = "2006-01-02T15:04:05.000000Z"

// An entry is a line of the log. Texts from a client can neither break it nor harm a terminal.
type entry struct {
	Time         string     `json:"time"`
	RequestID    string     `json:"requestId,omitempty"`
	Caller       string     `json:"caller,omitempty"`
	Client       netip.Addr `json:"client,omitzero"`
	Action       Action     `json:"action"`
	Set          string     `json:"set,omitempty"`
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
		Time: r.at.UTC().Format(timeForm), RequestID: r.RequestID, Caller: shown(r.Caller), Client: r.Client, Action: r.Action, Set: shown(r.Set),
		Changes: r.Changes, Replayed: r.Replayed, Subscription: r.Subscription, Callback: shown(r.Callback),
		Status: r.status, Outcome: r.outcome(), Count: r.count,
	}
	if !r.Cursor.IsZero() {
		e.Cursor = r.Cursor.String()
	}
	if r.Action == "" {
		e.Action, e.Method, e.Path = Request, shown(r.Method), shown(r.Path)
	}
	return e.append(b)
}

// lostLine appends a line that says how many lines are missing before it.
func lostLine(b []byte, at time.Time, n uint64) []byte {
	return (&entry{Time: at.UTC().Format(timeForm), Action: "lost", Outcome: "lost", Count: n}).append(b)
}

func (e *entry) append(b []byte) []byte {
	text, _ := json.Marshal(e) // these fields always have a form in JSON
	return append(append(b, text...), '\n')
}

// mostShown bounds a text that a client has chosen, in bytes.
const mostShown = 256

// shown returns a text that a client has chosen as the log shows it.
func shown(text string) string {
	bad := func(c rune) bool { return !unicode.IsPrint(c) }
	if len(text) <= mostShown && !strings.ContainsFunc(text, bad) {
		return text
	}
	text = strings.Map(func(c rune) rune {
		if bad(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text[:min(len(text), mostShown)])
	return text
}
