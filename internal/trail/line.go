package trail

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/rshub/rshub/feed"
)

// A line is a line of the audit log.
type line struct {
	Time      string `json:"time"`
	RequestID string `json:"requestId,omitempty"`
	Caller    string `json:"caller,omitempty"`
	Client    string `json:"client,omitempty"`

	Action       Action `json:"action"`
	Set          string `json:"set,omitempty"`
	Changes      uint64 `json:"changes,omitempty"`
	Cursor       string `json:"cursor,omitempty"`
	Replayed     bool   `json:"replayed,omitempty"`
	Subscription string `json:"subscription,omitempty"`
	Callback     string `json:"callback,omitempty"`

	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Status  int    `json:"status,omitempty"`
	Outcome string `json:"outcome"`
	Count   uint64 `json:"count,omitempty"`
}

// append appends the line of r. What a client has chosen cannot break it, nor do harm on a
// terminal.
func (r *Record) append(b []byte) []byte {
	l := line{
		Time: r.at.UTC().Format("2006-01-02T15:04:05.000000Z"), RequestID: r.RequestID, Caller: shown(r.Caller),
		Action: r.Action, Set: shown(r.Set), Changes: r.Changes, Replayed: r.Replayed, Subscription: r.Subscription, Callback: shown(r.Callback),
		Status: r.status, Outcome: r.outcome(), Count: r.count,
	}
	if r.Client.IsValid() {
		l.Client = r.Client.String()
	}
	if r.Cursor != (feed.Cursor{}) {
		l.Cursor = r.Cursor.String()
	}
	if l.Action == "" {
		l.Action, l.Method, l.Path = Request, shown(r.Method), shown(r.Path)
	}
	text, _ := json.Marshal(&l) // strings and numbers only
	return append(append(b, text...), '\n')
}

// lostLine appends a line that says how many others are missing before it.
func lostLine(b []byte, at time.Time, n uint64) []byte {
	text, _ := json.Marshal(&line{Time: at.UTC().Format("2006-01-02T15:04:05.000000Z"), Action: "lost", Outcome: "lost", Count: n})
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
