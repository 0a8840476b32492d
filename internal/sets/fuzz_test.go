package sets

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// An accepted body is within its limits.
func FuzzBodies(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`,
		`{"title":"a","describedby":"https://a.example/","private":true,"complete":false}`, `{"complete":true}`, `{"title":"a\nb"}`, `{"title":"\ud800"}`, `{"source":"https://a.example/","every":"15m"}`, `{"source":"x","every":"1ns"}`, `{"every":"1h"}`, `{"cloudevents":{"loc": "a\u003cb"}}`,
		`{"resourcelist":"javascript:alert(1)"}`, `{"changedump":"https://user:pass@a.example/"}`, `{"Title":"a","TITLE":"b"}`, `{"inventory":"off","complete":true}`, `{"private":"yes"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		d, err := readDescription(strings.NewReader(body))
		if err != nil {
			return
		}
		if len(d.Title) > 1000 || strings.ContainsAny(d.Title, "\r\n\x00\x1b") || d.Source == "" != (d.every == 0) || d.every != 0 && (d.every < minPollInterval || d.every > maxPollInterval) {
			t.Errorf("readDescription(%q) = %+v, want an error", body, d)
		}
		for _, link := range []string{d.DescribedBy, d.ResourceList, d.ResourceDump, d.ChangeDump} {
			if u, err := url.Parse(link); link != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || strings.ContainsAny(link, "<>\"\r\n ")) {
				t.Errorf("readDescription(%q): got the link %q, want an error", body, link)
			}
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		d.onlyComplete = false // the text has all members
		if again, err := readDescription(strings.NewReader(string(text))); err != nil || again.description() != d.description() {
			t.Errorf("readDescription(%q): got %s, which is read as %+v, %v", body, text, again, err)
		}
	})
}
