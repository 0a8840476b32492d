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

// A Content is a record as a resource: the answer to GetRecord (section 4.1).
type Content struct {
	Change resourcesync.Change // says all of the answer; of a deleted record, only that it is deleted
	Text   []byte
}

// Contents lists the records as GetRecord returns them, in any order. It makes these answers
// of lists, of which each request brings many records. An answer has the datestamp of its
// record as responseDate, so that a record that stays the same has the same bytes in each list.
// A record may come twice: the later one counts.
//
// A *Bad that is not None stands for a record that may have a resource, and a *Doubt at the end
// for any number of them. Every other error ends the list, which then is not whole.
func (h *Harvest) Contents(ctx context.Context) iter.Seq2[*Content, error] {
	return func(yield func(*Content, error) bool) {
		id, err := h.Repository.Identify(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		l := new(List)
		s := Selection{Prefix: cmp.Or(h.Prefix, "oai_dc"), Set: h.Set, Records: true, whole: true, again: true}
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
	loc, rule := Template("").of(h.Repository, prefix, rec)
	if rule != "" {
		return nil, &Bad{rec.Identifier, number, rule, true, rec.Datestamp}
	}
	if rec.Deleted {
		return &Content{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}}, nil
	}
	text := rec.frame.answer(id, prefix, rec)
	sum, length := sha256.Sum256(text), int64(len(text))
	return &Content{resourcesync.Change{
		Loc: loc, Change: resourcesync.Updated, Lastmod: rec.Time, Type: "text/xml", Length: &length, Hash: "sha-256:" + hex.EncodeToString(sum[:]),
		Links: id.collections(rec, prefix),
	}, text}, nil
}

// A frame has the start tags around the records of a list. They may declare the namespaces of
// the records.
type frame struct{ root, list string }

// answer returns the answer to GetRecord that has a record of the list.
func (f *frame) answer(id *Identity, prefix string, rec *Record) []byte {
	root, list := tagName(f.root), tagName(f.list)
	prolog, one := strings.TrimSuffix(root, "OAI-PMH"), strings.TrimSuffix(list, "ListRecords")+"GetRecord"
	date := rec.Datestamp
	if !rec.Time.IsZero() {
		date = rec.Time.UTC().Format(secondForm)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s<%sresponseDate>%s</%[3]sresponseDate>", xml.Header, f.root, prolog, escaped(date))
	fmt.Fprintf(&b, `<%srequest verb="GetRecord" identifier="%s" metadataPrefix="%s">%s</%[1]srequest>`, prolog, escaped(rec.Identifier), escaped(prefix), escaped(id.BaseURL))
	fmt.Fprintf(&b, "<%s%s%s</%[1]s></%[4]s>\n", one, f.list[len("<"+list):], rec.text, root)
	text := bytes.ReplaceAll(b.Bytes(), []byte(string(xmlrepair.Damage)), []byte("\ufffd"))
	return named.ReplaceAllFunc(text, func(text []byte) []byte {
		name, isEntity := bytes.CutPrefix(bytes.TrimSuffix(text, []byte(";")), []byte("&"))
		character, known := xml.HTMLEntity[string(name)]
		if !isEntity || !known || strings.ContainsAny(character, `&<>"`) {
			return text
		}
		return []byte(character)
	})
}

// named finds the entities of HTML, which XML does not have, and what only looks like one in a
// comment, a processing instruction or a CDATA section.
var named = regexp.MustCompile(`(?s)<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|&\w+;`)

// tagName returns the name in a start tag, with its prefix.
func tagName(tag string) string {
	return tag[1 : 1+strings.IndexAny(tag[1:], " \t\r\n/>")]
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// A tape keeps what was read of an answer, until it is taken.
type tape struct {
	*bufio.Reader
	kept []byte
	from int64 // where kept begins in the answer
}

// ReadByte reads a byte. A decoder of XML reads in no other way.
func (t *tape) ReadByte() (byte, error) {
	b, err := t.Reader.ReadByte()
	if err == nil {
		t.kept = append(t.kept, b)
	}
	return b, err
}

// take returns a copy of the answer from begin to end, and forgets everything before end. A nil
// tape has kept nothing.
func (t *tape) take(begin, end int64) []byte {
	if t == nil {
		return nil
	}
	text := bytes.Clone(t.kept[begin-t.from : end-t.from])
	t.kept = append(t.kept[:0], t.kept[end-t.from:]...)
	t.from = end
	return text
}
