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

// AppendJSON appends the summary as a JSON object on one line.
func (s *Summary) AppendJSON(dst []byte) []byte {
	return fmt.Appendf(dst, `{"set":"%s","cursor":"%v","complete":%t,"count":%d,"weak":%d,"position":"%v","content":"%v"}`,
		s.Set, s.Cursor, s.Complete, s.Count, s.Weak, s.Position, s.Content) // the name of a set needs no escape
}

// AppendJSON appends the question as a JSON object on one line.
func (q *Question) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"at":"%v","by":"%s","ranges":`, q.At, q.By)
	dst = appendArray(dst, q.Ranges, func(dst []byte, r *RangeQuestion) []byte {
		return append(appendDigest(appendRange(dst, r.Range, r.Count), &r.Digest), '}')
	})
	return append(dst, '}')
}

// AppendJSON appends the reply as a JSON object on one line.
func (r *Reply) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"set":"%s","cursor":"%v","ranges":`, r.Set, r.Cursor)
	dst = appendArray(dst, r.Ranges, func(dst []byte, a *RangeAnswer) []byte {
		dst = appendRange(dst, a.Range, a.Count)
		if a.Listed {
			dst = appendArray(append(dst, `,"resources":`...), a.Resources, appendResource)
		} else {
			dst = appendDigest(dst, &a.Digest)
		}
		return append(dst, '}')
	})
	return append(dst, '}')
}

func appendArray[T any](dst []byte, all []T, appendElement func(dst []byte, element *T) []byte) []byte {
	dst = append(dst, '[')
	for i := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendElement(dst, &all[i])
	}
	return append(dst, ']')
}

// appendResource appends a resource, with the members of its entry if it has one.
func appendResource(dst []byte, r *Resource) []byte {
	c := resourcesync.Change{Loc: r.Loc}
	if r.Entry != nil {
		c = r.Entry.Change
		c.Datetime = time.Time{} // the member datetime has the hub's time, sourceDatetime the source's
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
	return append(hex.AppendEncode(append(dst, `,"e":"`...), r.E[:]), `"}`...)
}

// appendRange appends the start of an object: from, to and count.
func appendRange(dst []byte, r inventory.Range, count uint64) []byte {
	dst = appendBound(append(dst, `{"from":`...), r.From)
	dst = appendBound(append(dst, `,"to":`...), r.To)
	return strconv.AppendUint(append(dst, `,"count":`...), count, 10)
}

func appendBound(dst []byte, loc string) []byte {
	if loc == "" {
		return append(dst, "null"...)
	}
	dst, _ = jsontext.AppendQuote(dst, loc) // the error only means that invalid UTF-8 was replaced
	return dst
}

func appendDigest(dst []byte, d *digest.Digest) []byte {
	return append(hex.AppendEncode(append(dst, `,"digest":"`...), d[:]), '"')
}

// AppendJSON appends the difference as a JSON object on one line. The member hub has the other
// end's resource.
func (d *Difference) AppendJSON(dst []byte) []byte {
	dst = fmt.Appendf(dst, `{"difference":"%s",`, d.Kind)
	dst = resourcesync.AppendJSONMembers(dst, &resourcesync.Change{Loc: d.Loc})
	if d.Own != nil {
		c := d.Own.Change
		c.Change = "" // meaningless without the log
		dst = append(resourcesync.AppendJSONMembers(append(dst, `,"own":{`...), &c), '}')
	}
	if d.Theirs != nil {
		dst = d.Theirs.AppendJSON(append(dst, `,"hub":`...))
	}
	return append(dst, '}')
}
