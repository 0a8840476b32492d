package trial

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A List is a ResourceSync document, and what only the hub's own attributes in
// it say.
type List struct {
	*resourcesync.Document
	After, Cursor string
	Diverged      bool
	Entries       []Entry
	Changes       []json.RawMessage // the entries, as the hub shows them in JSON
}

// ReadList reads a ResourceSync document.
func ReadList(b []byte) (*List, error) {
	doc, err := resourcesync.ReadXML(bytes.NewReader(b), resourcesync.Limits{})
	if err != nil {
		return nil, err
	}
	l := &List{Document: doc}
	return l, l.readHubAttributes(b)
}

// A hubAttributes is what the hub's attributes say of a rs:md.
type hubAttributes struct {
	After          string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
	Cursor         string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
	Diverged       bool   `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	Position       uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
	SourceDatetime string `xml:"https://github.com/rshub/rshub/terms/ sourceDatetime,attr"`
}

// readHubAttributes reads the hub's own attributes, which rshub's reader leaves out as
// it leaves out those of anybody who sends them.
func (l *List) readHubAttributes(b []byte) error {
	var doc struct {
		MD  hubAttributes `xml:"http://www.openarchives.org/rs/terms/ md"`
		URL []struct {
			MD hubAttributes `xml:"http://www.openarchives.org/rs/terms/ md"`
		} `xml:"url"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		return err
	}
	l.After, l.Cursor, l.Diverged = doc.MD.After, doc.MD.Cursor, doc.MD.Diverged
	if l.Cursor == "" {
		return nil // no list of changes
	}
	for i := range l.Items {
		c := l.Items[i].Change
		md := doc.URL[i].MD
		members := fmt.Sprintf(`"position":%d,"datetime":"%s"`, md.Position, resourcesync.AppendTimeMicro(nil, c.Datetime.UnixMicro()))
		if md.SourceDatetime != "" {
			members += `,"sourceDatetime":"` + md.SourceDatetime + `"`
		}
		c.Datetime = time.Time{}
		raw := []byte("{" + members + "," + string(resourcesync.AppendJSONMembers(nil, &c)) + "}")
		e, err := ParseEntry(raw)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
		l.Entries, l.Changes = append(l.Entries, e), append(l.Changes, raw)
	}
	return nil
}
