package oaipmh

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"github.com/rshub/rshub/internal/xmlrepair"
	"github.com/rshub/rshub/resourcesync"
)

// A Content is a record as a resource: the response to GetRecord (section 4.1).
type Content struct {
	Change resourcesync.Change // describes the whole response; of a deleted record, only that it is deleted
	Text   []byte
}

// Contents lists the records as GetRecord returns them, in any order. It creates these responses
// from lists, whose requests return many records each. A response has the datestamp of its record
// as responseDate, so that an unchanged record has the same bytes in each list. A record may come
// twice: the later one counts.
//
// A *BadRecord without NoResource is a record that may have a resource, and an *UncertainList at the end
// stands for any number of them. Every other error ends the list, which is then incomplete.
func (h *Harvest) Contents(ctx context.Context) iter.Seq2[*Content, error] {
	return func(yield func(*Content, error) bool) {
		id, err := h.Repository.Identify(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		l := new(List)
		s := Selection{Prefix: cmp.Or(h.Prefix, "oai_dc"), Set: h.Set, Records: true, keepText: true, restart: true}
		for rec, err := range h.Repository.List(ctx, l, id.Granularity, s) {
			var c *Content
			if err == nil {
				h.noteDamage(l, rec)
				c, err = h.content(id, s.Prefix, rec, l.Count)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// content returns the content of the record with a number in a list.
func (h *Harvest) content(id *Identity, prefix string, rec *Record, number int) (*Content, error) {
	loc, rule := Template("").locOf(h.Repository, prefix, rec)
	if rule != "" {
		return nil, &BadRecord{rec.Identifier, number, rule, true, rec.Datestamp}
	}
	if rec.Deleted {
		return &Content{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}}, nil
	}
	text := rec.frame.response(id, prefix, rec)
	sum, length := sha256.Sum256(text), int64(len(text))
	return &Content{resourcesync.Change{
		Loc: loc, Change: resourcesync.Updated, Lastmod: rec.Time, Type: "text/xml", Length: &length, Hash: "sha-256:" + hex.EncodeToString(sum[:]),
		Links: id.collections(rec, prefix),
	}, text}, nil
}

// A frame has the start tags around the records of a list. They may declare the namespaces of the
// records.
type frame struct{ root, list string }

// response returns the response to GetRecord for a record of the list.
func (f *frame) response(id *Identity, prefix string, rec *Record) []byte {
	root, list := tagName(f.root), tagName(f.list)
	prolog, one := strings.TrimSuffix(root, "OAI-PMH"), strings.TrimSuffix(list, "ListRecords")+"GetRecord"
	date := rec.Datestamp
	if !rec.Time.IsZero() {
		date = rec.Time.UTC().Format(secondLayout)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s<%sresponseDate>%s</%[3]sresponseDate>", xml.Header, f.root, prolog, escaped(date))
	fmt.Fprintf(&b, `<%srequest verb="GetRecord" identifier="%s" metadataPrefix="%s">%s</%[1]srequest>`, prolog, escaped(rec.Identifier), escaped(prefix), escaped(id.BaseURL))
	fmt.Fprintf(&b, "<%s%s%s</%[1]s></%[4]s>\n", one, f.list[len("<"+list):], rec.text, root)
	text := bytes.ReplaceAll(b.Bytes(), []byte(string(xmlrepair.Damage)), []byte("\ufffd"))
	return entities.ReplaceAllFunc(text, func(text []byte) []byte {
		name, isEntity := bytes.CutPrefix(bytes.TrimSuffix(text, []byte(";")), []byte("&"))
		character, known := xml.HTMLEntity[string(name)]
		if !isEntity || !known || strings.ContainsAny(character, `&<>"`) {
			return text
		}
		return []byte(character)
	})
}

// entities matches the entities of HTML, which XML does not have, and comments, processing
// instructions and CDATA sections, in which text may only look like an entity.
var entities = regexp.MustCompile(`(?s)<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|&\w+;`)

// tagName returns the name in a start tag, with its prefix.
func tagName(tag string) string {
	return tag[1 : 1+strings.IndexAny(tag[1:], " \t\r\n/>")]
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder returns no error
	return b.String()
}

// A recorder records the bytes that are read from a response.
type recorder struct {
	*bufio.Reader
	recorded []byte
	start    int64 // offset of recorded in the response
}

// ReadByte reads a byte. The XML decoder reads in no other way.
func (t *recorder) ReadByte() (byte, error) {
	b, err := t.Reader.ReadByte()
	if err == nil {
		t.recorded = append(t.recorded, b)
	}
	return b, err
}

// cut returns a copy of the response from begin to end, and discards everything before end. It
// returns nil if t is nil.
func (t *recorder) cut(begin, end int64) []byte {
	if t == nil {
		return nil
	}
	text := bytes.Clone(t.recorded[begin-t.start : end-t.start])
	t.recorded = append(t.recorded[:0], t.recorded[end-t.start:]...)
	t.start = end
	return text
}
