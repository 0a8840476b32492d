package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An Entry is a change as a client received it. Its text is the change in a canonical form.
type Entry struct {
	Position uint64
	Datetime string // assigned by the hub
	Text     string
}

// ParseEntry parses a change in the published form, or in the JSON form of the hub. It does not
// use the parser of rshub, which is under test.
func ParseEntry(b []byte) (e Entry, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var c map[string]any
	if err := d.Decode(&c); err != nil {
		return e, err
	}
	if p, ok := c["position"].(json.Number); ok {
		n, err := p.Int64()
		if err != nil || n < 1 {
			return e, fmt.Errorf("invalid position %v", p)
		}
		e.Position = uint64(n)
		if e.Datetime, ok = c["datetime"].(string); !ok {
			return e, errors.New("entry has no datetime")
		}
		delete(c, "position")
		delete(c, "datetime")
		if own, ok := c["sourceDatetime"]; ok {
			c["datetime"] = own
			delete(c, "sourceDatetime")
		}
	}
	e.Text, err = canonical(c)
	return e, err
}

// canonical returns a change with normalized times and sorted members.
func canonical(c map[string]any) (string, error) {
	objects := []map[string]any{c}
	if links, ok := c["ln"].([]any); ok {
		for _, l := range links {
			if m, ok := l.(map[string]any); ok {
				objects = append(objects, m)
			}
		}
	}
	for _, o := range objects {
		for _, name := range []string{"lastmod", "datetime", "modified"} {
			if s, ok := o[name].(string); ok {
				t, err := time.Parse(time.RFC3339Nano, s)
				if err != nil {
					t, err = time.Parse("2006-01-02", s)
				}
				if err != nil {
					return "", err
				}
				o[name] = t.UTC().Format(time.RFC3339Nano)
			}
		}
	}
	b, err := json.Marshal(c) // sorts the members
	return string(b), err
}
