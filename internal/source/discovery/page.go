package discovery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

const (
	maxHTML   = 1 << 20 // bytes of a page that are searched for links
	sniffLen  = 512     // bytes of a response that show its kind
	maxMemory = 8 << 20 // approximate bytes of memory that the pages of one Find may use
)

// A page is the part of a response that matters for discovery.
type page struct {
	url   *url.URL    // after redirects
	links []feed.Link // of the Link header and of HTML; absolute

	// doc is the ResourceSync document or sitemap in the response; nil if it is neither. It has
	// items only for a Source Description or a Capability List. Other documents may be large, and
	// their header is enough.
	doc *resourcesync.Document

	linkset *linkset // API catalog in the response, or nil
	html    bool     // whether the response is an HTML page
	text    bool     // whether the response is plain text

	memory *int // bytes of memory that the pages of the Find may still use
}

// useMemory takes bytes from the memory of the Find.
func (p *page) useMemory(bytes int) error {
	if *p.memory -= bytes; *p.memory < 0 {
		return resourcesync.Invalidf("the descriptions of the site need more than %d MiB of memory", maxMemory>>20)
	}
	return nil
}

// get requests a page and takes its memory from *memory. An error is one of the Getter, or means
// that the response is an unreadable ResourceSync document.
func get(ctx context.Context, g *harvest.Getter, address string, room *int) (*page, error) {
	a, err := g.Get(ctx, "the page", address, harvest.Version{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	p := &page{url: a.URL, memory: room}
	err = p.addLinks(feed.ParseLinks(a.Header.Values("Link")), p.url)
	if err == nil {
		err = p.read(bufio.NewReader(a.Body), a.Header.Get("Content-Type"))
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", harvest.Plain(p.url), harvest.Explain(ctx, err))
	}
	return p, nil
}

// statusOf returns the HTTP status of a failed request; 0 if the error has none.
func statusOf(err error) int {
	if f, ok := errors.AsType[*outbound.Failure](err); ok {
		return f.Status
	}
	return 0
}

// isAbsent reports whether an error means that a URL has no document, or no ResourceSync document.
func isAbsent(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone || errors.Is(err, ErrNotFound)
}

// read reads the body of a response with a content type.
func (p *page) read(body *bufio.Reader, contentType string) error {
	begin, err := body.Peek(sniffLen)
	if err != nil && err != io.EOF {
		return err
	}
	begin = bytes.TrimLeft(bytes.TrimPrefix(begin, []byte("\ufeff")), " \t\r\n")
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case media == "text/html", media == "application/xhtml+xml", strings.HasPrefix(http.DetectContentType(begin), "text/html"):
		p.html = true
		return p.readHTML(io.LimitReader(body, maxHTML))
	case media == linksetType, media == "application/json":
		if p.linkset, err = readLinkset(body, p.url); err != nil || p.linkset == nil {
			return err
		}
		return p.useMemory(p.linkset.size())
	case bytes.HasPrefix(begin, []byte("<")):
		return p.xml(body, bytes.Contains(begin, []byte("urlset")) || bytes.Contains(begin, []byte("sitemapindex")))
	}
	p.text = media == "text/plain"
	return nil
}

// xml reads a document. It returns an error if the root element is that of a sitemap and the
// document cannot be read. It ignores all other XML.
func (p *page) xml(body io.Reader, ours bool) error {
	utf8, err := harvest.DecodeXML(body)
	if err != nil && !ours {
		return nil
	}
	if err != nil {
		return err
	}
	in := resourcesync.NewXMLReader(utf8, resourcesync.Limits{})
	in.Tolerate(func(*resourcesync.Error) {}) // the URLs are right even if a time has no zone
	h, err := in.Header()
	if err != nil {
		if _, invalid := errors.AsType[*resourcesync.Error](err); invalid && !ours {
			return nil
		}
		return err
	}
	doc := &resourcesync.Document{Header: h}
	resolve(p.url, doc.Links)
	if err := p.useMemory((&resourcesync.Change{Links: doc.Links}).Size()); err != nil {
		return err
	}
	for h.Capability == resourcesync.Description || h.Capability == resourcesync.CapabilityList {
		it, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		it.Loc = absolute(p.url, it.Loc)
		resolve(p.url, it.Links)
		if err := p.useMemory(it.Size()); err != nil {
			return err
		}
		doc.Items = append(doc.Items, *it)
	}
	p.doc = doc
	return nil
}

// readHTML reads the links of an HTML page from its link elements.
func (p *page) readHTML(body io.Reader) error {
	base := p.url
	for z := html.NewTokenizer(body); ; {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); err != io.EOF {
				return err
			}
			return nil
		case html.StartTagToken, html.SelfClosingTagToken:
		default:
			continue
		}
		t := z.Token()
		attrs := map[string]string{}
		for _, a := range t.Attr {
			attrs[a.Key] = a.Val
		}
		href := strings.TrimSpace(attrs["href"])
		switch {
		case t.Data == "base" && href != "":
			if u, err := p.url.Parse(href); err == nil {
				base = u
			}
		case t.Data == "link" && href != "":
			if err := p.addLinks([]feed.Link{{URI: href, Rel: attrs["rel"]}}, base); err != nil {
				return err
			}
		case t.Data == "body":
			return nil // links for the whole page are in its head
		}
	}
}

// addLinks adds links, which are relative to base.
func (p *page) addLinks(links []feed.Link, base *url.URL) error {
	for _, l := range links {
		l.URI = absolute(base, l.URI)
		if err := p.useMemory(100 + len(l.URI) + len(l.Rel)); err != nil {
			return err
		}
		p.links = append(p.links, l)
	}
	return nil
}

// rel returns the targets of the links of a relation, each once.
func (p *page) rel(name string) []string {
	var to []string
	seen := map[string]bool{}
	for _, l := range p.links {
		if l.HasRel(name) && !seen[l.URI] {
			seen[l.URI] = true
			to = append(to, l.URI)
		}
	}
	return to
}

// firstLink returns the target of the first link of a relation in a document, or "".
func firstLink(links []resourcesync.Link, rel string) string {
	for _, l := range links {
		if strings.EqualFold(l.Rel, rel) {
			return l.Href
		}
	}
	return ""
}

// resolve makes links absolute. They should be absolute, but some sources write relative ones.
func resolve(base *url.URL, links []resourcesync.Link) {
	for i := range links {
		links[i].Href = absolute(base, links[i].Href)
	}
}

// absolute returns a reference as an absolute URL without its fragment. An unreadable reference
// stays unchanged, and fails when it is requested.
func absolute(base *url.URL, reference string) string {
	u, err := base.Parse(reference)
	if err != nil {
		return reference
	}
	_ = idn.Host(u) // an invalid host fails when it is requested
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}
