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

// Header marks a request in binary mode: its headers that begin with "Ce-" are the attributes
// of an event, and its body is the event's data.
const Header = "Ce-Specversion"

// Read returns the changes that the events of a request are, in their order, by the mapping in
// the description of the set. An event that is none is left out. A wrong event makes the error
// a *resourcesync.Error, with its number from 1, and with up to resourcesync.MaxErrors of them.
// An error of l.Room is returned as it is. Of the limits, Bytes and Depth do not count. An array
// is a batch even if the request labels it as one event.
//
// The identity is the same for a request that says the same again: the same kinds of changes
// of the same resources, with the same ids and sources. These two alone do not tell all events
// apart, because some producers give one id to several events, as Debezium does in a snapshot.
// The identity is empty if there is no change.
func Read(body []byte, header http.Header, d feed.Description, l resourcesync.Limits) (changes []resourcesync.Change, identity string, err error) {
	m, err := ParseMapping(string(d.CloudEvents))
	if err != nil {
		return nil, "", err
	}
	mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if header.Get(Header) != "" {
		if body, err = binary(body, header, mediaType); err != nil {
			return nil, "", err
		}
		mediaType = MediaType
	}
	var first *resourcesync.Error // that is wrong
	memory, sum := int64(0), sha256.New()
	n, err := each(body, mediaType == BatchMediaType, func(n int, raw jsontext.Value) error {
		if n > l.Entries && l.Entries > 0 {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("a batch has at most %d events; send more in several", l.Entries)}
		}
		e, err := parse(raw)
		var c *resourcesync.Change
		if err == nil {
			c, err = m.change(e)
		}
		if c != nil && l.Check != nil {
			err = l.Check(c)
		}
		if wrong, ok := errors.AsType[*resourcesync.Error](err); ok {
			wrong.Entry = n
			if first == nil {
				first = wrong
			} else if first.More = append(first.More, wrong); len(first.More)+1 == resourcesync.MaxErrors {
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

// each calls do with each event of a body, which is one event, or a batch: an array. It returns
// the number of the event that it is at.
func each(body []byte, batch bool, do func(n int, raw jsontext.Value) error) (n int, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	switch kind := d.PeekKind(); {
	case kind == '[':
		batch = true // Debezium labels a batch as one event
	case batch && kind == '{':
		return 0, resourcesync.Invalidf("a batch is an array of events, not an object; send one event as %s", MediaType)
	case batch:
		return 0, resourcesync.Invalidf("a batch is an array of events")
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
		return 0, resourcesync.Invalidf("something follows the end of the events")
	}
	return 0, nil
}

var encoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// decode returns the byte that is percent-encoded in the value of a header, if it has to be
// encoded there (HTTP binding section 3.1.3.2). Else the text stays: some senders, such as the
// SDK for Go, encode nothing, and the text is a part of a URI.
func decode(text string) string {
	c, _ := strconv.ParseUint(text[1:], 16, 8)
	if c > ' ' && c < 0x7F && c != '"' && c != '%' {
		return text
	}
	return string([]byte{byte(c)})
}

// binary returns as JSON the event that a request in binary mode carries. Data that is not JSON
// is left out.
func binary(data []byte, header http.Header, mediaType string) (e []byte, err error) {
	for name, values := range header {
		name, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if len(values) > 1 {
			return nil, resourcesync.Invalidf("Ce-%s is there %d times; an attribute of an event has one value", resourcesync.Shorten(name), len(values))
		}
		value := encoded.ReplaceAllStringFunc(values[0], decode)
		if !utf8.ValidString(value) || name == "" || name == "data" {
			return nil, resourcesync.Invalidf("Ce-%s is no attribute of an event, or not in UTF-8", resourcesync.Shorten(name))
		}
		e, _ = jsontext.AppendQuote(append(e, ','), name)
		e, _ = jsontext.AppendQuote(append(e, ':'), value)
	}
	e[0] = '{'
	if isJSON := mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"); isJSON && len(data) > 0 {
		if !jsontext.Value(data).IsValid() {
			return nil, resourcesync.Invalidf("the data is no valid JSON, as its media type %s says", mediaType)
		}
		e = append(append(e, `,"data":`...), data...)
	}
	return append(e, '}'), nil
}
