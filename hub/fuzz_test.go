package hub

import (
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// The headers of a publish are parsed as specified, or refused as a mistake of the client.
func FuzzPublishHeaders(f *testing.F) {
	base := feed.Base("https://hub.example.org")
	links := `<` + base.Topic("demo") + `>; rel="self", <` + base.Hub() + `>; rel="hub"`
	f.Add("", "application/json", "", links)
	f.Add(`"key"`, "application/xml;charset=UTF-8", "gzip", links)
	f.Add(`"`, "text/xml; charset=iso-8859-1", "", `<`+base.Topic("demo")+`>; rel="self hub"`)
	f.Add(` " " `, "application/x-ndjson; charset", "x-gzip", `<`+base.Topic("de mo")+`>; rel=self, <`+base.Hub()+`/>; rel=hub`)
	f.Add(strings.Repeat("k", changelog.MaxKey+1), "multipart/form-data; boundary=x", "br", links+","+links)
	f.Add("\x00\xff", "application/json;;", " GZIP ", `<https://evil.example/sets/demo/changes>; rel=self, <`+base.Hub()+`>; rel=hub`)
	h := &Hub{opts: Options{Base: base}}
	f.Fuzz(func(t *testing.T, key, contentTypeText, encoding, link string) {
		r := httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(""))
		r.Header = http.Header{"Idempotency-Key": {key}, "Content-Type": {contentTypeText}, "Content-Encoding": {encoding}, "Link": {link}}
		mistake := func(err error) {
			t.Helper()
			if p := problem.From(err); p.Status != http.StatusBadRequest && p.Status != http.StatusUnsupportedMediaType {
				t.Errorf("%q: got error %v", r.Header, err)
			}
		}
		got, err := h.idempotencyKey(r)
		if err != nil {
			mistake(err)
		} else {
			if got == "" || len(got) > changelog.MaxKey || !strings.Contains(key, got) || len(key) > len(strings.TrimSpace(key))+0 && strings.TrimSpace(key) == got && got != strings.TrimSpace(got) {
				t.Errorf("idempotencyKey(%q) = %q", key, got)
			}
			r.Header["Idempotency-Key"] = []string{`"` + got + `"`} // quoted or not, it is the same
			if again, err := h.idempotencyKey(r); err != nil || again != got {
				t.Errorf("quoted key %q: got %q, %v", got, again, err)
			}
			r.Header["Idempotency-Key"] = []string{got, got}
			if _, err := h.idempotencyKey(r); err == nil {
				t.Errorf("two keys %q were accepted", got)
			}
		}
		form, err := h.format(r.Header)
		if media, params, merr := mime.ParseMediaType(contentTypeText); err != nil {
			mistake(err)
		} else if c := strings.ToLower(params["charset"]); merr != nil || form == xmlFormat != strings.HasSuffix(media, "/xml") || form == jsonFormat != (media == "application/json") || c != "" && c != "utf-8" && c != "us-ascii" {
			t.Errorf("format(%q) = %v", contentTypeText, form)
		}
		set, err := h.linkedSet(r.Header)
		if err != nil {
			mistake(err)
		} else if feed.CheckSet(set) != nil || !strings.Contains(link, base.Topic(set)) || !strings.Contains(link, base.Hub()) {
			t.Errorf("linkedSet(%q) = %q", link, set)
		}
	})
}
