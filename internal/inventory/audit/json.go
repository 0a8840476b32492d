package audit

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// AppendJSON appends the look as one JSON object on one line.
func (l *Summary) AppendJSON(dst []byte) []byte {
	return fmt.Appendf(dst, `{"set":"%s","cursor":"%v","complete":%t,"count":%d,"weak":%d,"position":"%v","content":"%v"}`,
		l.Set, l.Cursor, l.Complete, l.Count, l.Weak, l.Position, l.Content) // a set's name needs no escape
}

// AppendJSON appends the question as one JSON object on one line.
func (q *Question) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"at":"%v","by":"%s","ranges":[`, q.At, q.By)
	for i := range q.Ranges {
		r := &q.Ranges[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendRange(dst, r.Range, r.Count)
		dst = appendDigest(dst, &r.Digest)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// AppendJSON appends the reply as one JSON object on one line.
func (r *Reply) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"set":"%s","cursor":"%v","ranges":[`, r.Set, r.Cursor)
	for i := range r.Ranges {
		a := &r.Ranges[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendRange(dst, a.Range, a.Count)
		if !a.Listed {
			dst = append(appendDigest(dst, &a.Digest), '}')
			continue
		}
		dst = append(dst, `,"resources":[`...)
		for k := range a.Resources {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = a.Resources[k].appendJSON(dst)
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// appendJSON appends the resource, with the members of its entry if it has one.
func (r *Resource) appendJSON(dst []byte) []byte {
	c := resourcesync.Change{Loc: r.Loc}
	if r.Entry != nil {
		c = r.Entry.Change
		c.Datetime = time.Time{} // the source's; the hub's has taken this member
	}
	dst = append(dst, '{')
	dst = resourcesync.AppendJSONMembers(dst, &c)
	dst = append(dst, `,"position":`...)
	dst = strconv.AppendUint(dst, r.Position, 10)
	if r.Entry != nil {
		dst = append(dst, `,"datetime":"`...)
		dst = append(resourcesync.AppendTimeMicro(dst, r.Entry.Micros), '"')
		if t := r.Entry.Change.Datetime; !t.IsZero() {
			dst = append(dst, `,"sourceDatetime":"`...)
			dst = append(resourcesync.AppendTime(dst, t), '"')
		}
	}
	dst = append(dst, `,"e":"`...)
	dst = hex.AppendEncode(dst, r.E[:])
	return append(dst, `"}`...)
}

// appendRange appends the beginning of an object: from, to and count.
func appendRange(dst []byte, r inventory.Range, count uint64) []byte {
	dst = appendEnd(append(dst, `{"from":`...), r.From)
	dst = appendEnd(append(dst, `,"to":`...), r.To)
	return strconv.AppendUint(append(dst, `,"count":`...), count, 10)
}

func appendEnd(dst []byte, loc string) []byte {
	if loc == "" {
		return append(dst, "null"...)
	}
	dst, _ = jsontext.AppendQuote(dst, loc) // the error only says that invalid UTF-8 was replaced
	return dst
}

func appendDigest(dst []byte, d *digest.Digest) []byte {
	dst = append(dst, `,"digest":"`...)
	return append(hex.AppendEncode(dst, d[:]), '"')
}

// AppendJSON appends the difference as one JSON object on one line. The member hub is
// what the other end has.
func (d *Difference) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"difference":"`...)
	dst = append(append(dst, d.Kind...), `",`...)
	dst = resourcesync.AppendJSONMembers(dst, &resourcesync.Change{Loc: d.Loc})
	if d.Own != nil {
		c := d.Own.Change
		c.Change = "" // an end without the log knows no kinds of changes
		dst = append(resourcesync.AppendJSONMembers(append(dst, `,"own":{`...), &c), '}')
	}
	if d.Theirs != nil {
		dst = d.Theirs.AppendJSON(append(dst, `,"hub":`...))
	}
	return append(dst, '}')
}
