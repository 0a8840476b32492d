package resourcesync

import (
	"bytes"
	"testing"
	"time"
)

// benchChange returns a change of typical size, about 300 bytes in JSON.
func benchChange() *Change {
	return &Change{
		Loc: "https://repository.example.org/records/10.5281/zenodo.1234567", Change: Updated,
		Datetime: time.Date(2026, 1, 3, 0, 7, 22, 120_003_000, time.UTC), Lastmod: time.Date(2026, 1, 3, 0, 7, 20, 0, time.UTC),
		Hash:   "sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784",
		Length: size(38297), Type: "application/pdf",
		Links: []Link{{Rel: "describedby", Href: "https://repository.example.org/records/1234567.xml"}},
	}
}

func benchDocument(n int) *Document {
	d := &Document{Header: Header{Capability: ChangeList, From: time.Unix(0, 0)}}
	for range n {
		d.Items = append(d.Items, Item{Change: *benchChange()})
	}
	return d
}

func BenchmarkReadXML(b *testing.B) {
	const n = 1000
	text := marshalXML(b, benchDocument(n))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadXML(bytes.NewReader(text), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

func BenchmarkReadJSON(b *testing.B) {
	const n = 100
	text := []byte(`{"changes":[`)
	for i := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(AppendJSONMembers(append(text, '{'), benchChange()), '}')
	}
	text = append(text, "]}"...)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadJSON(bytes.NewReader(text), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

func BenchmarkParseChange(b *testing.B) {
	text := append(AppendJSONMembers([]byte("{"), benchChange()), '}')
	b.Run("ParseChange", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseChange(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ChangeParser", func(b *testing.B) {
		var p ChangeParser
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	c := benchChange()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	c := benchChange()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendJSONMembers(dst[:0], c)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkAppendXML(b *testing.B) {
	it := &Item{Change: *benchChange()}
	it.Attrs = []Attr{{Terms, "position", "1234567"}}
	ns := NewNamespaces("h", Terms)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendXMLItem(dst[:0], it, ns)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkAppendTimeMicro(b *testing.B) {
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendTimeMicro(dst[:0], 1_357_171_642_120_000)
	}
}

func BenchmarkSize(b *testing.B) {
	c := benchChange()
	for b.Loop() {
		c.Size()
	}
}
