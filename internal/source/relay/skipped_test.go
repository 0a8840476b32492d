package relay_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/servertest"
)

// While a list has an entry with an unreadable loc, nothing is deleted, and each poll names the
// entry.
func TestListSkips(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/sitemap.xml", listOf("a", "b", "sun1", "sun2"))
	w.begin("/sitemap.xml")
	w.pollWant("compared 4 0 0")
	s.put("/sitemap.xml", listOf("a", "c", "sun&#55356;&#57118;", "sun&#55356;&#57119;"))
	for _, want := range []string{"compared 1 0 0", "compared 0 0 0"} {
		w.gaps = nil
		if res := w.pollWant(want); res.Gaps != 2 || res.Deleted != 0 {
			t.Errorf("Poll() = %+v, want 2 gaps and 0 deleted", res)
		}
		if len(w.gaps) != 2 || !strings.Contains(w.gaps[0], "entry 3 (https://a.example/sun") || !strings.Contains(w.gaps[1], "entry 4 (https://a.example/sun") {
			t.Errorf("got gaps %q, want entries 3 and 4", w.gaps)
		}
		w.wantLocs("a", "b", "c", "sun1", "sun2")
	}
	s.put("/sitemap.xml", listOf("a", "c", "sun2"))
	if res := w.pollWant("compared 0 0 2"); res.Gaps != 0 {
		t.Errorf("Poll() = %+v, want no gap", res)
	}
}

// A set that was never compared without a gap is not complete.
func TestListSkipsFirst(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/sitemap.xml", listOf("a", "b&"))
	w.begin("/sitemap.xml")
	if res := w.pollWant("compared 1 0 0"); res.Complete || res.Gaps != 1 {
		t.Errorf("Poll() = %+v, want 1 gap and not complete", res)
	}
	s.put("/sitemap.xml", listOf("a", "b"))
	if res := w.pollWant("compared 1 0 0"); !res.Complete {
		t.Errorf("Poll() = %+v, want complete", res)
	}
}

// A change with an unreadable loc is named once, and all others are published.
func TestChangeListSkips(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2"))
	w.begin("/changes.xml")
	w.pollWant("changes 2 0 0")
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "c& created 3", "b deleted 4", "d created 5"))
	if res := w.pollWant("changes 1 0 1"); res.Gaps != 1 {
		t.Errorf("Poll() = %+v, want 1 gap", res)
	}
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "c& created 3", "b deleted 4", "d created 5", "e created 6"))
	if res := w.pollWant("changes 1 0 0"); res.Gaps != 0 {
		t.Errorf("Poll() = %+v, want no gap", res)
	}
	w.wantLocs("a", "d", "e")
	if len(w.gaps) != 1 || !strings.Contains(w.gaps[0], "entry 3 (https://a.example/c") {
		t.Errorf("got gaps %q, want one for entry 3", w.gaps)
	}
}

// If a Resource List or the Change List after it has such an entry, nothing is deleted.
func TestBaselineSkips(t *testing.T) {
	for name, docs := range map[string][2]string{
		"list":    {"a|b&", ""},
		"changes": {"a", "c& created 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(site)
			w := newWorld(t, s)
			list := func(resources string) string {
				return strings.Replace(listOf(strings.Split(resources, "|")...), opening, opening+`<rs:md capability="resourcelist" at="`+minute(1)+`"/>`, 1)
			}
			s.put("/capabilities.xml", opening+`<rs:md capability="capabilitylist"/><url><loc>HOST/list.xml</loc><rs:md capability="resourcelist"/></url><url><loc>HOST/changes.xml</loc><rs:md capability="changelist"/></url></urlset>`)
			s.put("/list.xml", list("a|b"))
			s.put("/changes.xml", changesOf(0))
			w.begin("/capabilities.xml")
			w.pollWant("compared 2 0 0")
			s.put("/list.xml", list(docs[0]))
			s.put("/changes.xml", changesOf(0, slices.DeleteFunc([]string{docs[1]}, func(s string) bool { return s == "" })...))
			w.clock = w.clock.Add(25 * time.Hour)
			if res := w.pollWant("compared 0 0 0"); res.Gaps != 1 {
				t.Errorf("Poll() = %+v, want 1 gap", res)
			}
			w.wantLocs("a", "b")
		})
	}
}

// A refusal names the host that the list was redirected to, because all resources of a site that
// has moved look new.
func TestListMoved(t *testing.T) {
	s := new(site)
	moved := false
	w := newWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if host, port, _ := net.SplitHostPort(r.Host); moved && host == "127.0.0.1" {
			http.Redirect(rw, r, "http://localhost:"+port+r.URL.Path, http.StatusMovedPermanently)
			return
		}
		s.ServeHTTP(rw, r)
	}))
	names := func(prefix string) (all []string) {
		for i := range 20 {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	s.put("/sitemap.xml", listOf(names("old")...))
	w.begin("/sitemap.xml")
	w.pollWant("compared 20 0 0")
	s.put("/sitemap.xml", listOf(names("new")...))
	moved = true
	w.pollWant("20 of the 20 known resources would be deleted: the source redirects to http://localhost:")
}

// Whatever is wrong with a list, no resource that it may still name is deleted.
func TestFaultyListDeletesNothing(t *testing.T) {
	whole := listOf("a", "b", "c")
	last := "<url><loc>https://a.example/c</loc></url>"
	for name, doc := range map[string]string{
		"empty":                           "",
		"blank":                           " \n",
		"cut off":                         whole[:len(whole)-12],
		"cut off in an entry":             whole[:strings.Index(whole, "/b<")],
		"web page":                        "<!DOCTYPE html><html><body>down for maintenance</body></html>",
		"fragment of a web page":          "<title>502 Bad Gateway",
		"JSON":                            `{"error":"down"}`,
		"text":                            "down for maintenance",
		"another root":                    "<rss/>",
		"index of itself":                 `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>HOST/sitemap.xml</loc></sitemap></sitemapindex>`,
		"index of nothing there":          `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>HOST/none.xml</loc></sitemap></sitemapindex>`,
		"no entries":                      listOf(),
		"deleted entry":                   strings.Replace(whole, last, `<url><loc>https://a.example/c</loc><rs:md change="deleted"/></url>`, 1),
		"entry of another namespace":      strings.Replace(whole, last, `<url xmlns="urn:x"><loc>https://a.example/c</loc></url>`, 1),
		"entry without its end":           strings.Replace(whole, "</url>", "", 1),
		"two locs":                        strings.Replace(whole, last, "<url><loc>https://a.example/c</loc><loc>https://a.example/d</loc></url>", 1),
		"entity":                          strings.Replace(whole, "/c<", "/&c;<", 1),
		"surrogate":                       strings.Replace(whole, "/c<", "/&#xD83C;<", 1),
		"no loc":                          strings.Replace(whole, last, "<url/>", 1),
		"no URL":                          strings.Replace(whole, last, "<url><loc>https://</loc></url>", 1),
		"text that hides an entry":        strings.Replace(whole, last, "< "+last[1:], 1),
		"comment without an end":          strings.Replace(whole, last, "<!-- "+last, 1),
		"comments that hide an entry":     strings.Replace(whole, last, "<!-- x ->"+last+"<!-- y -->", 1),
		"declaration that hides an entry": strings.Replace(whole, last, "<!x "+last+">", 1),
		"CDATA that hides an entry":       strings.Replace(strings.Replace(whole, "https://a.example/b<", "<![CDATA[https://a.example/b]><", 1), "https://a.example/c<", "<![CDATA[https://a.example/c]]><", 1),
		"quotations that hide an entry":   strings.Replace(whole, last, `<x t="y></x>`+last+`<x t="y"></x>`, 1),
		"CDATA without an end":            strings.Replace(whole, last, "<![CDATA["+last, 1),
		"instruction without an end":      strings.Replace(whole, last, "<?php "+last, 1),
		"quotation without an end":        strings.Replace(whole, last, `<rs:ln rel="up href="x"/>`+last, 1),
		"declarations":                    "<!DOCTYPE urlset [<!ENTITY c 'x'>]>" + whole,
		"unknown encoding":                `<?xml version="1.0" encoding="x-none"?>` + whole,
		"UTF-16":                          "\xff\xfe<\x00",
		"other text after the root":       whole + "x",
		"another list after the root":     whole + whole,
	} {
		t.Run(name, func(t *testing.T) {
			s := new(site)
			w := newWorld(t, s)
			s.put("/sitemap.xml", whole)
			w.begin("/sitemap.xml")
			w.pollWant("compared 3 0 0")
			s.put("/sitemap.xml", doc)
			w.restart()
			res, err := w.relay.Poll(t.Context())
			if res.Deleted > 0 || err == nil && res.Gaps == 0 {
				t.Errorf("Poll() = %+v, %v, want an error or a gap, and nothing deleted", res, err)
			}
			for _, loc := range []string{"a", "b", "c"} {
				w.holds(loc)
			}
		})
	}
}

// holds checks that the hub has a loc below the source.
func (w *world) holds(name string) {
	w.t.Helper()
	_, body := servertest.Do(w.t, http.MethodGet, w.base+"/sets/demo/resources", "", "Accept", "application/json")
	if !strings.Contains(body, `"https://a.example/`+name+`"`) {
		w.t.Errorf("hub lacks %s", name)
	}
}
