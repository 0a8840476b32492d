package trial

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A List is a ResourceSync document with the attributes of the hub.
type List struct {
	*resourcesync.Document
	After, Cursor string
	Diverged      bool
	Entries       []Entry
	Changes       []json.RawMessage // the entries in the JSON form of the hub
}

// ReadList parses a ResourceSync document.
func ReadList(b []byte) (*List, error) {
	doc, err := resourcesync.ReadXML(bytes.NewReader(b), resourcesync.Limits{})
	if err != nil {
		return nil, err
	}
	l := &List{Document: doc}
	return l, l.readHubAttributes(b)
}

// hubAttributes are the attributes of the hub in an rs:md element.
type hubAttributes struct {
	After          string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
	Cursor         string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
	Diverged       bool   `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	Position       uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
	SourceDatetime string `xml:"https://github.com/rshub/rshub/terms/ sourceDatetime,attr"`
}

// readHubAttributes reads the attributes of the hub, which the parser of rshub ignores, as it
// ignores them from any sender.
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
		return nil // not a list of changes
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
