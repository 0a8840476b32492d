package feed

import (
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// SinceBaseline is the value of the parameter since, in place of a cursor, with which a client
// reads all resources of a set and then follows the set.
const SinceBaseline = "baseline"

// A BaselineCursor is a position in a baseline: the client has read all resources of the set before
// it, as of the log cursor. The rank counts all resources of the set before the position in the
// order of loc, even if the client reads only a part of the set.
//
// The log cursor alone does not identify the content of a set. An inventory that was disabled and
// enabled again, or that was reset because the log lost its tail, may hold other resources at the
// same cursor. So a BaselineCursor also identifies the root of the inventory.
type BaselineCursor struct {
	Cursor
	Rank uint64 // number of resources of the set before the position
	Root uint32 // identifies the content of the set: the start of its digest by position; zero means unknown
}

// ParseBaselineCursor parses the text form of a BaselineCursor, "position-microseconds~rank~root".
// The root is hexadecimal and may be omitted. An error is a *resourcesync.Error with ErrInvalid.
func ParseBaselineCursor(s string) (BaselineCursor, error) {
	before, after, ok := strings.Cut(s, "~")
	rankText, rootText, hasRoot := strings.Cut(after, "~")
	cursor, cerr := ParseCursor(before)
	rank, rerr := strconv.ParseUint(rankText, 10, 64)
	root := uint64(0)
	if hasRoot && rerr == nil {
		root, rerr = strconv.ParseUint(rootText, 16, 32)
	}
	if !ok || cerr != nil || rerr != nil || rank > MaxNumber {
		return BaselineCursor{}, resourcesync.Invalidf("invalid baseline cursor %q: want position-microseconds~rank~root, as the hub returned it", resourcesync.Shorten(s))
	}
	return BaselineCursor{cursor, rank, uint32(root)}, nil
}

// String returns the text form. Clients must treat it as opaque.
func (c BaselineCursor) String() string { return string(c.Append(nil)) }

// Append appends the text form to dst and returns the extended slice.
func (c BaselineCursor) Append(dst []byte) []byte {
	dst = append(c.Cursor.Append(dst), '~')
	dst = strconv.AppendUint(dst, c.Rank, 10)
	if c.Root == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, '~'), uint64(c.Root), 16)
}

// A BaselinePart describes a part of a baseline, without its resources. The resources are in the
// order of loc, each with its newest change. The last part is the end of the baseline and has no
// resources.
type BaselinePart struct {
	Set   string
	After BaselineCursor // cursor before the first resource of the part
	Next  BaselineCursor // cursor to continue from; at the end, only its log cursor is set
	// Whether the hub knows all resources of the set. If so, a resource that the baseline does not
	// name does not exist.
	Complete bool
	Count    uint64 // number of resources in the whole baseline
	Restart  bool   // whether the baseline starts over; the client must discard all earlier parts

	// Whether Count and the digests are unknown. This is so if the baseline names only some of the
	// resources between its cursors: to count them, the hub would have to read all resources.
	Uncounted bool

	// Only at the end of a baseline.
	End                           bool   // whether all resources were named, as of the log cursor; the changes after it follow
	PositionDigest, ContentDigest string // digests of the resources, by position and by content
}

// Cursor returns the value of the parameter since with which a client continues after p.
func (p *BaselinePart) Cursor() string {
	if p.End {
		return p.Next.Cursor.String()
	}
	return p.Next.String()
}

// A BaselineWriter encodes one part of a baseline. Each function appends to dst and returns the
// extended slice. A caller that does not yet know where the part ends calls Head last. next is the
// URL of the next page, or empty if p is pushed and not a page.
type BaselineWriter struct {
	Head  func(dst []byte, p *BaselinePart, next string) []byte // appends the text before the first resource
	Entry func(dst []byte, e *Entry, first bool) []byte         // appends a resource, after the separator unless it is the first
	Tail  func(dst []byte, p *BaselinePart, next string) []byte // appends the text after the last resource
}

// baselineJSON encodes a part as one JSON object. The end of a baseline is also a valid batch
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

// baselineNDJSON encodes only the resources.
var baselineNDJSON = &BaselineWriter{
	Head:  func(dst []byte, _ *BaselinePart, _ string) []byte { return dst },
	Entry: appendLine,
	Tail:  func(dst []byte, _ *BaselinePart, _ string) []byte { return dst },
}

// baselineCapability is the capability of a part of a baseline in XML. The part has the form of a
// Resource List but is not one (core section 10.1), since it is only a part and has only the
// resources that the hub knows.
const baselineCapability = resourcesync.Terms + "baseline"

// baselineXML returns a BaselineWriter that encodes a part in the form of a Resource List, and the
// end of a baseline as a change notification without changes.
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

// HeaderValue returns the part without its resources as one line of JSON. It is the value of the
// header RS-Baseline of a page.
func (p *BaselinePart) HeaderValue() string { return string(append(p.appendJSONMembers(nil), '}')) }

// appendJSONHead appends the JSON object up to its first entry.
func (p *BaselinePart) appendJSONHead(dst []byte, next string) []byte {
	dst = p.appendJSONMembers(dst)
	if next != "" {
		dst = append(dst, `,"next":`...)
		dst = strconv.AppendQuote(dst, next) // for a URL, Go and JSON have the same quoting
	}
	if p.End {
		return append(dst, `,"changes":[`...)
	}
	return append(dst, `,"resources":[`...)
}

func (p *BaselinePart) appendJSONMembers(dst []byte) []byte {
	dst = append(dst, `{"set":"`...)
	dst = append(dst, p.Set...) // the name of a set needs no escaping
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
		dst = append(dst, p.PositionDigest...)
		dst = append(dst, `","content":"`...)
		dst = append(dst, p.ContentDigest...)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"after":"`...)
	dst = p.After.Append(dst)
	dst = append(dst, `","cursor":"`...)
	dst = append(dst, p.Cursor()...)
	return append(dst, '"')
}

func (p *BaselinePart) header() *resourcesync.Header {
	h := &resourcesync.Header{Capability: baselineCapability, At: p.Next.Time()}
	if p.End {
		h = &resourcesync.Header{Capability: resourcesync.ChangeNotification, From: h.At, Until: h.At}
	}
	setAttr := func(name, value string) {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: name, Value: value})
	}
	setAttr("baseline", strconv.FormatBool(!p.End))
	setAttr("complete", strconv.FormatBool(p.Complete))
	if !p.Uncounted {
		setAttr("count", strconv.FormatUint(p.Count, 10))
	}
	if p.Restart {
		setAttr("restart", "true")
	}
	if p.End && !p.Uncounted {
		setAttr("positionDigest", p.PositionDigest) // position is an attribute of resources
		setAttr("contentDigest", p.ContentDigest)
	}
	setAttr("after", p.After.String())
	setAttr("cursor", p.Cursor())
	return h
}
