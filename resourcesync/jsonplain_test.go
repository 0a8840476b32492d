package resourcesync

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rshub/rshub/internal/plainjson"
)

// sameAsAny fails if ParseChange makes something else of a text than a decoder of all of
// JSON does: another change, or another error.
func sameAsAny(t *testing.T, text []byte, got *Change, gotErr error) {
	t.Helper()
	want := new(Change)
	err := new(ChangeParser).parseAny(text, want)
	if err != nil {
		want = nil
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotErr, err) {
		t.Errorf("%q is read as %+v, %v\nnot as %+v, %v", text, got, gotErr, want, err)
	}
}

// sameDocument is sameAsAny for ReadJSON.
func sameDocument(t *testing.T, text []byte, l Limits) {
	t.Helper()
	got, gotErr := ReadJSON(bytes.NewReader(text), l)
	want, err := readJSON(bytes.NewReader(text), l.withDefaults())
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotErr, err) {
		t.Errorf("%q with %+v is read as %+v, %v\nnot as %+v, %v", text, l, got, gotErr, want, err)
	}
}

const plainText = `{"loc":"https://example.org/a?b&c","change":"updated","datetime":"2013-01-03T00:07:22.5Z","lastmod":"2013-01-03T01:00:00+01:00",` +
	`"changefreq":"daily","hash":"md5:00 a:b", "length": 8876,"type":"application/pdf","encoding":"gzip","path":"/a",` +
	`"ln":[{"rel":"duplicate","href":"urn:x:b","pri":1,"modified":"2013-01-03","hash":"a:b","length":0,"type":"a/b","encoding":"br","path":"/b","profile":"urn:x:p"},` +
	`{"rel":"up","href":"urn:x:c"}]}`

// TestPlainChange tells what is plain from what is not, and what is to be refused.
func TestPlainChange(t *testing.T) {
	in := plainjson.NewReader(plainText)
	if c := new(Change); !plainChange(&in, c) || !in.Done() {
		t.Errorf("a plain change is not read as one")
	}
	in = plainjson.NewReader(string(AppendJSONMembers([]byte("{"), benchChange())) + "}")
	if c := new(Change); !plainChange(&in, c) || !in.Done() {
		t.Errorf("what rshub writes is not plain")
	}
	texts := []string{allOfAChange, goodChange, goodChange + "\r", goodChange + " \n", `{"loc":""}`, `{"loc":"a","loc":"b"}`, `{"loc":"a","ln":[{"rel":"a","rel":"b","href":"c"}]}`,
		`{"loc":"a","ln":[{"rel":"a"}]}`, `{"loc":"a","ln":[]}`, `{"loc":"a","ln":[{"rel":"a","href":"b","pri":0}]}`, `{"loc":"a","ln":[{"rel":"a","href":"b","pri":1000000}]}`,
		`{"loc":"a","hash":" a:b"}`, `{"loc":"a","hash":"a:b  c:d"}`, `{"loc":"a","length":00}`, `{"loc":"a","length":-1}`, `{"loc":"a","length":1e3}`, `{"loc":"a","length":999999999999999999}`,
		`{"loc":"a","length":9999999999999999999}`, `{"loc":"a","datetime":"2013-02-29"}`, `{"loc":"a","change":"Updated"}`, `{"loc":"a","links":[]}`, `{"loc":"a"}{}`, `{"loc":"a"`,
		`{"loc":"a","ln":[` + strings.Repeat(`{"rel":"a","href":"b"},`, maxLinks) + `{"rel":"a","href":"b"}]}`}
	for i := range len(plainText) { // broken at each place
		texts = append(texts, plainText[:i], plainText[:i]+" "+plainText[i:], plainText[:i]+plainText[i+1:], plainText[:i]+"\\"+plainText[i:], plainText[:i]+"ü"+plainText[i:],
			plainText[:i]+"0"+plainText[i:], plainText[:i]+","+plainText[i:], plainText[:i]+`"`+plainText[i:])
	}
	for _, bad := range badChanges {
		texts = append(texts, bad.in)
	}
	for _, text := range texts {
		c, err := ParseChange([]byte(text))
		sameAsAny(t, []byte(text), c, err)
	}
}

// TestPlainDocument does the same for documents.
func TestPlainDocument(t *testing.T) {
	good := `{"from":"2013-01-03","changes":[` + plainText + "," + goodChange + `],"until":"2013-01-04","capability":"changelist"}`
	plain := &text{Buffer: *bytes.NewBufferString(good), whole: true}
	if d, err := plain.document(Limits{}.withDefaults()); d == nil || err != nil {
		t.Errorf("a plain document is not read as one: %v", err)
	}
	texts := []string{good + "\n", " " + good, `{"changes":[]}`, `{"changes":[],"changes":[]}`, `{"from":"2013-01-03"}`, `{}`, ``, `[]`, goodChange, `{"changes":[` + goodChange + `]}{}`,
		`{"changes":[` + goodChange + `,]}`, `{"changes":[` + goodChange + ` ]}`, `{"set":"a","changes":[` + goodChange + `]}`, `{"capability":"a","changes":[],"capability":"b"}`}
	for i := range len(good) {
		texts = append(texts, good[:i], good[:i]+" "+good[i:], good[:i]+good[i+1:], good[:i]+"0"+good[i:], good[:i]+","+good[i:])
	}
	for _, bad := range badChanges {
		texts = append(texts, `{"changes":[`+goodChange+","+bad.in+","+goodChange+","+bad.in+`]}`)
	}
	for _, text := range texts {
		for _, l := range []Limits{{}, {Check: (*Change).Validate}, {Entries: 1}, {Depth: 5}, {Bytes: int64(len(good)) - 2}} {
			sameDocument(t, []byte(text), l)
		}
	}
	// Errors of all entries, and documents that are too large to be read before they are decoded.
	for _, n := range []int{2, 19, 20, 21, 40, 4000, 5000, 20_000} {
		for _, entry := range []string{goodChange, `{"loc":"urn:x:a"}`, `{"loc":"urn:x:a","Change":"updated"}`} {
			document := []byte(`{"changes":[` + strings.Repeat(entry+",", n-1) + entry + "]}")
			sameDocument(t, document, Limits{Check: (*Change).Validate, Bytes: int64(len(document))})
			sameDocument(t, document, Limits{Check: (*Change).Validate, Bytes: int64(len(document)) - 1})
		}
	}
}

// TestPlainDocumentByParts reads documents that come bit by bit, and break off.
func TestPlainDocumentByParts(t *testing.T) {
	lost := fmt.Errorf("lost")
	for _, n := range []int{1, 100, 20_000} {
		document := `{"changes":[` + strings.Repeat(goodChange+",", n-1) + goodChange + "]}"
		for name, r := range map[string]io.Reader{
			"halves": iotest.HalfReader(strings.NewReader(document)), "the error with the data": iotest.DataErrReader(strings.NewReader(document)),
			"timeouts": io.MultiReader(strings.NewReader(document), iotest.ErrReader(io.EOF)),
		} {
			if d, err := ReadJSON(r, Limits{}); err != nil || len(d.Items) != n {
				t.Errorf("%d entries, %s: %v", n, name, err)
			}
		}
		for _, cut := range []int{0, len(document) / 2, len(document)} {
			d, err := ReadJSON(io.MultiReader(strings.NewReader(document[:cut]), iotest.ErrReader(lost)), Limits{})
			want, wantErr := readJSON(io.MultiReader(strings.NewReader(document[:cut]), iotest.ErrReader(lost)), Limits{}.withDefaults())
			if !reflect.DeepEqual(d, want) || !reflect.DeepEqual(err, wantErr) {
				t.Errorf("%d entries, lost after %d bytes: %v, want %v", n, cut, err, wantErr)
			}
		}
	}
}
