package feed

import (
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// SinceBaseline is what a client gives as since to read all resources of a set, and then
// to follow. The word stands where a cursor does.
const SinceBaseline = "baseline"

// A Place is a place in a baseline: a client has read all resources of the set, as it
// was at the cursor, up to here. The rank is how many resources of the whole set lie
// before the place, in the order of loc, whatever part of the set the client reads.
//
// The cursor alone does not say what the set held: an inventory that was turned off and on
// again, or that went back when the log lost its tail, may hold other resources at the same
// cursor than before. So a place also says of which root it is.
type Place struct {
	Cursor
	Rank uint64
	Root uint32 // identifies what the set held: the beginning of its digest by position; 0: not known
}

// ParsePlace reads the text form of a place, "position-microseconds~rank~root", where root
// is a number in hex and may be missing. An error is a *resourcesync.Error with ErrInvalid.
func ParsePlace(s string) (Place, error) {
	before, after, ok := strings.Cut(s, "~")
	rest, text, named := strings.Cut(after, "~")
	cursor, cerr := ParseCursor(before)
	rank, rerr := strconv.ParseUint(rest, 10, 64)
	root := uint64(0)
	if named && rerr == nil {
		root, rerr = strconv.ParseUint(text, 16, 32)
	}
	if !ok || cerr != nil || rerr != nil || rank > MaxNumber {
		return Place{}, resourcesync.Invalid("%q is no place in a baseline: a place is position-microseconds~rank~root, as the hub gave it", resourcesync.Shorten(s))
	}
	return Place{cursor, rank, uint32(root)}, nil
}

// String returns the text form. Clients must treat it as opaque.
func (p Place) String() string { return string(p.Append(nil)) }

// Append appends the text form to dst.
func (p Place) Append(dst []byte) []byte {
	dst = append(p.Cursor.Append(dst), '~')
	dst = strconv.AppendUint(dst, p.Rank, 10)
	if p.Root == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, '~'), uint64(p.Root), 16)
}

// A BaselinePart is what is said of a part of a baseline besides its resources. These
// stand in the order of loc, each with its newest change. The last part of a baseline is
// its end, which names no resource.
type BaselinePart struct {
	Set      string
	After    Place  // the place before the first resource of the part
	Place    Place  // the place to go on from; at the end, only its cursor counts
	Complete bool   // the hub knows all resources of the set: what the baseline does not name does not exist
	Count    uint64 // how many resources the whole baseline names
	Restart  bool   // the baseline begins anew; what was read of the one before means nothing

	// The baseline names only some of the resources that lie between its places. Then
	// Count and the digests are unknown, because the hub would have to read all
	// resources to find them out.
	Uncounted bool

	// At the end of a baseline.
	End               bool   // all resources were named, as of the cursor; the changes after it follow
	Position, Content string // the digests of the resources, by position and by content
}

// Cursor returns what a client gives as since to go on behind p.
func (p *BaselinePart) Cursor() string {
	if p.End {
		return p.Place.Cursor.String()
	}
	return p.Place.String()
}

// A BaselineWriter appends one part of a baseline. A caller that does not know yet where
// the part ends calls Head last. If p is a page, next is the URL of the page that follows.
// If p is pushed, next is empty.
type BaselineWriter struct {
	Head  func(dst []byte, p *BaselinePart, next string) []byte // what stands before the first resource
	Entry func(dst []byte, e *Entry, first bool) []byte         // a resource, with what stands between it and the one before; first: there is none before
	Tail  func(dst []byte, p *BaselinePart, next string) []byte // what stands behind the last resource
}

// baselineJSON shows a part as one JSON object. The end of a baseline is also a batch
// without changes.
var baselineJSON = &BaselineWriter{
	Head:  func(dst []byte, p *BaselinePart, next string) []byte { return p.appendJSONHead(dst, next) },
	Entry: appendMember,
	Tail: func(dst []byte, _ *BaselinePart, next string) []byte {
		if dst = append(dst, "]}"...); next != "" {
			dst = append(dst, '\n')
		}
		return dst
	},
}

// baselineNDJSON shows the resources alone.
var baselineNDJSON = &BaselineWriter{
	Head:  func(dst []byte, _ *BaselinePart, _ string) []byte { return dst },
	Entry: appendLine,
	Tail:  func(dst []byte, _ *BaselinePart, _ string) []byte { return dst },
}

// baselineCapability is the capability of a part of a baseline in XML. The part looks like
// a Resource List, but it is not one (core section 10.1): it is only a part, and has only
// what the hub knows.
const baselineCapability = resourcesync.Terms + "baseline"

// baselineXML returns a writer that shows a part like a Resource List, and the end of a
// baseline as a change notification without changes.
func baselineXML() *BaselineWriter {
	w := NewXMLWriter()
	return &BaselineWriter{
		Head:  func(dst []byte, p *BaselinePart, _ string) []byte { return w.AppendHeader(dst, p.header()) },
		Entry: func(dst []byte, e *Entry, _ bool) []byte { return w.appendBaseline(dst, e) },
		Tail: func(dst []byte, p *BaselinePart, _ string) []byte {
			return resourcesync.AppendXMLFooter(dst, p.header())
		},
	}
}

// Line returns the part without its resources as one line of JSON. It is the header
// RS-Baseline of a page.
func (p *BaselinePart) Line() string { return string(append(p.appendJSONMembers(nil), '}')) }

// appendJSONHead appends the object up to its first entry.
func (p *BaselinePart) appendJSONHead(dst []byte, next string) []byte {
	dst = p.appendJSONMembers(dst)
	if next != "" {
		dst = append(dst, `,"next":`...)
		dst = strconv.AppendQuote(dst, next) // Go quotes a URL like JSON does
	}
	if p.End {
		return append(dst, `,"changes":[`...)
	}
	return append(dst, `,"resources":[`...)
}

func (p *BaselinePart) appendJSONMembers(dst []byte) []byte {
	dst = append(dst, `{"set":"`...)
	dst = append(dst, p.Set...) // a set's name needs no escape
	dst = append(dst, `","baseline":`...)
	dst = strconv.AppendBool(dst, !p.End)
	dst = append(dst, `,"complete":`...)
	dst = strconv.AppendBool(dst, p.Complete)
	if !p.Uncounted {
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendUint(dst, p.Count, 10)
	}
	if p.Restart {
		dst = append(dst, `,"restart":true`...)
	}
	if p.End && !p.Uncounted {
		dst = append(dst, `,"position":"`...)
		dst = append(dst, p.Position...)
		dst = append(dst, `","content":"`...)
		dst = append(dst, p.Content...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"after":"`...)
	dst = p.After.Append(dst)
	dst = append(dst, `","cursor":"`...)
	dst = append(dst, p.Cursor()...)
	return append(dst, '"')
}

func (p *BaselinePart) header() *resourcesync.Header {
	h := &resourcesync.Header{Capability: baselineCapability, At: p.Place.Time()}
	if p.End {
		h = &resourcesync.Header{Capability: resourcesync.ChangeNotification, From: h.At, Until: h.At}
	}
	say := func(name, value string) {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: name, Value: value})
	}
	say("baseline", strconv.FormatBool(!p.End))
	say("complete", strconv.FormatBool(p.Complete))
	if !p.Uncounted {
		say("count", strconv.FormatUint(p.Count, 10))
	}
	if p.Restart {
		say("restart", "true")
	}
	if p.End && !p.Uncounted {
		say("positionDigest", p.Position) // the position of a resource is another attribute
		say("contentDigest", p.Content)
	}
	say("after", p.After.String())
	say("cursor", p.Cursor())
	return h
}
