package cloudevents

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Header marks a request in binary mode: its headers with the prefix "Ce-" are the attributes of an
// event, and its body is the data.
const Header = "Ce-Specversion"

// Read returns the changes described by the events of a request, in order. It uses the mapping in
// the description of the set, and ignores events that are not changes. For invalid events, the
// error is a *resourcesync.Error with the number of the first invalid event, counted from 1, and up
// to resourcesync.MaxErrors errors in total. An error of l.CheckMemory is returned unchanged. Read
// ignores l.Bytes and l.Depth. An array is a batch even if the request declares a single event.
//
// The identity is equal for a repeated request: one with the same kinds of changes of the same
// resources, with the same IDs and sources. IDs and sources alone do not distinguish all events,
// because some producers reuse an ID, as Debezium does in a snapshot. The identity is empty if
// there are no changes.
func Read(body []byte, header http.Header, d feed.Description, l resourcesync.Limits) (changes []resourcesync.Change, identity string, err error) {
	m, err := ParseMapping(string(d.CloudEvents))
	if err != nil {
		return nil, "", err
	}
	mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if header.Get(Header) != "" {
		if body, err = binaryEvent(body, header, mediaType); err != nil {
			return nil, "", err
		}
		mediaType = MediaType
	}
	var first *resourcesync.Error // first invalid event
	memory, sum := int64(0), sha256.New()
	n, err := forEachEvent(body, mediaType == BatchMediaType, func(n int, raw jsontext.Value) error {
		if n > l.Entries && l.Entries > 0 {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("batch has too many events; send at most %d per batch", l.Entries)}
		}
		e, err := parse(raw)
		var c *resourcesync.Change
		if err == nil {
			c, err = m.change(e)
		}
		if c != nil && l.Check != nil {
			err = l.Check(c)
		}
		if invalid, ok := errors.AsType[*resourcesync.Error](err); ok {
			invalid.Entry = n
			if first == nil {
				first = invalid
			} else if first.More = append(first.More, invalid); len(first.More)+1 == resourcesync.MaxErrors {
				return first
			}
		}
		if c == nil || first != nil {
			return nil
		}
		changes = append(changes, *c)
		fmt.Fprintf(sum, "%q %q %q %q\n", text(e["source"]), text(e["id"]), c.Change, c.Loc)
		memory += c.Memory()
		if l.CheckMemory == nil {
			return nil
		}
		return l.CheckMemory(memory)
	})
	if e, ok := errors.AsType[*resourcesync.Error](err); ok && e.Entry == 0 {
		e.Entry = n
	}
	if err == nil && first != nil {
		err = first
	}
	if err != nil || len(changes) == 0 {
		return nil, "", err
	}
	return changes, string(sum.Sum(nil)), nil
}

// forEachEvent calls do for each event of a body, which is one event or an array of events. If it
// fails, it returns the number of the current event, or 0 for an error about the whole body.
func forEachEvent(body []byte, batch bool, do func(n int, raw jsontext.Value) error) (n int, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	switch kind := d.PeekKind(); {
	case kind == '[':
		batch = true // Debezium declares a batch as a single event
	case batch && kind == '{':
		return 0, resourcesync.Invalidf("got an object, want an array of events; send a single event as %s", MediaType)
	case batch:
		return 0, resourcesync.Invalidf("batch is not an array of events")
	}
	if batch {
		_, _ = d.ReadToken()
	}
	for n = 1; n == 1 && !batch || batch && d.PeekKind() != ']'; n++ {
		v, err := d.ReadValue()
		if err != nil {
			return n, resourcesync.JSONError(err)
		}
		if err := do(n, v); err != nil {
			return n, err
		}
	}
	if batch {
		_, _ = d.ReadToken()
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return 0, resourcesync.Invalidf("unexpected data after the events")
	}
	return 0, nil
}

var percentEncoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// decodeByte decodes a percent-encoded byte in the value of a header if it had to be encoded there
// (HTTP binding section 3.1.3.2). Otherwise it returns the text unchanged: some senders, such as
// the Go SDK, encode nothing, so the text is part of a URI.
func decodeByte(text string) string {
	c, _ := strconv.ParseUint(text[1:], 16, 8)
	if c > ' ' && c < 0x7F && c != '"' && c != '%' {
		return text
	}
	return string([]byte{byte(c)})
}

// binaryEvent returns the JSON of the event in a request in binary mode. It drops data that is not
// JSON.
func binaryEvent(data []byte, header http.Header, mediaType string) (e []byte, err error) {
	for name, values := range header {
		name, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if len(values) > 1 {
			return nil, resourcesync.Invalidf("header Ce-%s: got %d values, want 1", resourcesync.Shorten(name), len(values))
		}
		value := percentEncoded.ReplaceAllStringFunc(values[0], decodeByte)
		if !utf8.ValidString(value) || name == "" || name == "data" {
			return nil, resourcesync.Invalidf("header Ce-%s: invalid attribute name or invalid UTF-8", resourcesync.Shorten(name))
		}
		e, _ = jsontext.AppendQuote(append(e, ','), name)
		e, _ = jsontext.AppendQuote(append(e, ':'), value)
	}
	e[0] = '{'
	if isJSON := mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"); isJSON && len(data) > 0 {
		if !jsontext.Value(data).IsValid() {
			return nil, resourcesync.Invalidf("data is not valid JSON, but its media type is %s", mediaType)
		}
		e = append(append(e, `,"data":`...), data...)
	}
	return append(e, '}'), nil
}
