package resourcesync

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// An error of CheckMemory is permanent, whichever call returns it and however far the parser
// reads ahead. Otherwise the bytes of that read would be missing within the document.
func TestCheckMemoryErrorIsPermanent(t *testing.T) {
	failure := errors.New("memory full")
	var json, xml strings.Builder
	json.WriteString(`{"changes":[{"loc":"a:b","change":"updated"}`)
	xml.WriteString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`)
	for i := range 3 {
		fmt.Fprintf(&json, `,{"loc":"a:%d","change":"updated","ln":[{"rel":"a","href":"b:c"},{"rel":"a","href":"b:c"}]}`, i)
		fmt.Fprintf(&xml, `<url><loc>a:%d</loc><rs:md change="updated"/><rs:ln rel="a" href="b:c"/></url>`, i)
	}
	json.WriteString("]}")
	xml.WriteString("</urlset>")
	for name, test := range map[string]struct {
		text string
		read func(io.Reader, Limits) (*Document, error)
	}{"JSON": {json.String(), ReadJSON}, "XML": {xml.String(), ReadXML}} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			if _, err := test.read(iotest.OneByteReader(strings.NewReader(test.text)), Limits{CheckMemory: func(int64) error { calls++; return nil }}); err != nil {
				t.Fatal(err)
			}
			for at := range calls {
				n := 0
				_, err := test.read(iotest.OneByteReader(strings.NewReader(test.text)), Limits{CheckMemory: func(int64) error {
					if n++; n == at+1 {
						return failure
					}
					return nil
				}})
				if !errors.Is(err, failure) {
					t.Fatalf("error with a failure of call %d of %d = %v, want %v", at, calls, err, failure)
				}
			}
		})
	}
}
