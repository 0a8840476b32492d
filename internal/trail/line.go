package trail

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rshub/rshub/feed"
)

const timeForm = "2006-01-02T15:04:05.000000Z"

// append appends the line of r. Texts from a client can neither break the line nor harm a
// terminal. The line is encoded by hand, because each publish has a line and
// encoding/json takes several times as long.
func (r *Record) append(b []byte) []byte {
	b = r.at.UTC().AppendFormat(append(b, `{"time":"`...), timeForm)
	b = append(b, '"')
	b = appendText(b, "requestId", r.RequestID)
	b = appendText(b, "caller", shown(r.Caller))
	if r.Client.IsValid() {
		b = append(r.Client.AppendTo(append(b, `,"client":"`...)), '"')
	}
	action := r.Action
	if action == "" {
		action = Request
	}
	b = appendText(b, "action", string(action))
	b = appendText(b, "set", shown(r.Set))
	b = appendNumber(b, "changes", r.Changes)
	if r.Cursor != (feed.Cursor{}) {
		b = append(r.Cursor.Append(append(b, `,"cursor":"`...)), '"')
	}
	if r.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	b = appendText(b, "subscription", r.Subscription)
	b = appendText(b, "callback", shown(r.Callback))
	if r.Action == "" {
		b = appendText(b, "method", shown(r.Method))
		b = appendText(b, "path", shown(r.Path))
	}
	b = appendNumber(b, "status", uint64(r.status))
	b = appendText(b, "outcome", r.outcome())
	b = appendNumber(b, "count", r.count)
	return append(b, '}', '\n')
}

// lostLine appends a line that says how many lines are missing before it.
func lostLine(b []byte, at time.Time, n uint64) []byte {
	b = at.UTC().AppendFormat(append(b, `{"time":"`...), timeForm)
	b = append(b, `","action":"lost","outcome":"lost"`...)
	return append(appendNumber(b, "count", n), '}', '\n')
}

// appendText appends a member with a text, if there is one.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(text) // a string always has a form in JSON
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// appendNumber appends a member with a number, if it is not 0.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendUint(b, n, 10)
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
