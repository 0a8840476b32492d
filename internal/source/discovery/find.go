package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

const maxPages = 200 // maximum number of documents that one Find requests; most are the descriptions of an index

// Find requests a URL, and the documents that it leads to, until it has found what the source
// offers for one set of resources. It blocks until then. The URL may be the URL of
//   - a topic, of an rshub or of another hub,
//   - a Capability List, or a Source Description that names one,
//   - a Resource List, a Change List, a dump or an index of these; then Find looks for the
//     Capability List that it belongs to, and the Source has that very list,
//   - a sitemap that is not a ResourceSync document,
//   - a page that links to one of these (rel=resourcesync, in HTML or in its Link header),
//   - anything at a site that has a Source Description at /.well-known/resourcesync; if the
//     URL itself does not exist, the description must be below it,
//   - an API catalog (RFC 9727) that names one of these, a page that links to such a
//     catalog, or the root of a site that has one at /.well-known/api-catalog,
//   - the root of a site that has a sitemap.
//
// Find tries in this order, and uses the first that exists:
//   - the URL itself;
//   - .well-known/resourcesync below it, and, if the URL exists, next to it and at the root of
//     the site;
//   - the API catalogs that the page links to (rel=api-catalog), and, if the URL is the root
//     of a site, /.well-known/api-catalog; of these, ResourceSync, a repository that speaks
//     OAI-PMH, and a sitemap;
//   - if the URL is the root of a site, the sitemap that its page links to (rel=sitemap), the
//     sitemaps that its robots.txt names, and /sitemap.xml.
//
// If robots.txt names several sitemaps, it is the Sitemap of the Source itself: a harvest.Lister
// reads it as an index. A catalog counts only with one repository, and with one sitemap: each of
// several may have only a part of the resources. Find looks for a sitemap even if it found a
// repository, for callers that only read lists.
//
// A catalog that cannot be parsed counts as absent. A server that does not answer at present ends
// the search, because its documents would take precedence over later ones.
//
// An error is a *MultipleSets, wraps ErrNotFound, or is an error of g, which names the request that
// failed and the cause. Find is safe for concurrent use.
func Find(ctx context.Context, g *harvest.Getter, address string) (*Source, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, resourcesync.Invalidf("%s is not a URL that begins with http:// or https://", resourcesync.Shorten(address))
	}
	f := &finder{getter: g, pages: map[string]*page{}, memory: maxMemory}
	s, err := f.find(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := f.completeTopic(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// A finder is one search.
type finder struct {
	getter *harvest.Getter
	pages  map[string]*page // by the requested URL
	memory int              // bytes of memory that further pages may use
}

// get returns a page. It requests each page only once.
func (f *finder) get(ctx context.Context, address string) (*page, error) {
	if p := f.pages[address]; p != nil {
		return p, nil
	}
	if len(f.pages) == maxPages {
		return nil, fmt.Errorf("stop after %d documents; the next is %s", maxPages, address)
	}
	p, err := get(ctx, f.getter, address, &f.memory)
	if err != nil {
		return nil, err
	}
	f.pages[address] = p
	return p, nil
}

func (f *finder) find(ctx context.Context, u *url.URL) (*Source, error) {
	isRoot := strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
	s, err := f.sourceAt(ctx, u.String())
	if !isAbsent(err) && !(isRoot && statusOf(err) == http.StatusForbidden) { // a site without a page often answers 403
		return s, err // a document elsewhere may describe a set other than the requested one
	}
	root, beside, below := *u, *u, *u
	root.Path = "/"
	beside.Path = u.Path[:strings.LastIndexByte(u.Path, '/')+1]
	below.Path = strings.TrimSuffix(u.Path, "/") + "/"
	places := []*url.URL{&below, &beside, &root}
	if statusOf(err) != 0 {
		places = places[:1]
	}
	seen := map[string]bool{}
	for _, place := range places {
		at := place.ResolveReference(&url.URL{Path: ".well-known/resourcesync"}).String()
		if seen[at] {
			continue
		}
		seen[at] = true
		if s, err := f.sourceAt(ctx, at); !isAbsent(err) && !refused(err) {
			return s, err
		}
	}
	catalogs, cerr := f.catalogs(ctx, f.catalogURLs(u, &root, isRoot))
	if cerr != nil {
		return nil, cerr
	}
	if s, err := f.catalogSource(ctx, catalogs); s != nil || err != nil {
		return s, err
	}
	repository, cerr := f.repository(ctx, catalogs)
	if cerr != nil {
		return nil, cerr
	}
	listed, cerr := f.catalogSitemap(ctx, catalogs)
	if cerr != nil {
		return nil, cerr
	}
	if listed != "" || repository != "" && !isRoot {
		return &Source{Repository: repository, Sitemap: listed}, nil
	}
	if !isRoot {
		return nil, fmt.Errorf("%w; /.well-known/resourcesync does not exist either", err)
	}
	s, serr := f.sitemap(ctx, u)
	if serr == nil && repository != "" {
		if s == nil {
			s = new(Source)
		}
		s.Repository = repository
	}
	if n := len(catalogs.services[oaiPMH]); serr == nil && s == nil && n > 1 {
		return nil, fmt.Errorf("%w; the API catalog of the site names %d repositories that speak OAI-PMH: use the URL of one, such as %s",
			err, n, catalogs.services[oaiPMH][0][0])
	}
	if serr == nil && s == nil {
		serr = fmt.Errorf("%w; there is no /.well-known/resourcesync, no sitemap in robots.txt and no /sitemap.xml", err)
	}
	return s, serr
}

// catalogURLs returns the URLs of the API catalogs of a site: the URL itself if it is a catalog,
// those that its page links to, and for the root of a site the well-known one.
func (f *finder) catalogURLs(u, root *url.URL, isRoot bool) []string {
	var places []string
	if p := f.pages[u.String()]; p != nil {
		if p.linkset != nil {
			places = append(places, u.String())
		}
		if p.html { // other responses may have the header of the whole site
			linked := p.rel("api-catalog")
			places = append(places, linked[:min(len(linked), maxNested)]...)
		}
	}
	if isRoot {
		places = append(places, root.ResolveReference(&url.URL{Path: "/.well-known/api-catalog"}).String())
	}
	return places
}

// refused reports whether a server refuses a page, and is not just busy.
func refused(err error) bool { return statusOf(err) != 0 && !harvest.IsAway(err) }

// sitemap returns the sitemap of a site; nil if there is none.
func (f *finder) sitemap(ctx context.Context, site *url.URL) (*Source, error) {
	var linked []string
	if p := f.pages[site.String()]; p != nil {
		linked, site = p.rel("sitemap"), p.url // after redirects
	}
	named, err := f.getter.Sitemaps(ctx, site)
	if err != nil {
		return nil, err
	}
	if len(linked) == 0 && len(named) > 1 {
		return &Source{Sitemap: site.ResolveReference(&url.URL{Path: "/robots.txt"}).String()}, nil
	}
	for _, at := range append(linked, named...) {
		s, err := f.sourceAt(ctx, at)
		switch {
		case errors.Is(err, ErrNotFound): // it may be a text with one URL on each line
			return &Source{Sitemap: at}, nil
		case !isAbsent(err) && !refused(err):
			return s, err
		}
	}
	s, err := f.sourceAt(ctx, site.ResolveReference(&url.URL{Path: "/sitemap.xml"}).String())
	if isAbsent(err) || refused(err) {
		return nil, nil
	}
	return s, err
}

// sourceAt returns the Source that a URL leads to.
func (f *finder) sourceAt(ctx context.Context, address string) (*Source, error) {
	p, err := f.get(ctx, address)
	if err != nil {
		return nil, err
	}
	switch {
	case p.isTopic():
		return f.topic(ctx, p)
	case p.doc == nil:
		return f.links(ctx, p)
	}
	here := p.url.String()
	switch p.doc.Capability {
	case resourcesync.Description:
		return f.description(ctx, p)
	case resourcesync.CapabilityList:
		return f.capabilities(p)
	case resourcesync.ResourceList, resourcesync.ResourceDump, resourcesync.ChangeList, resourcesync.ChangeDump:
		return f.list(ctx, p)
	case "":
		return &Source{Sitemap: here}, nil
	}
	return nil, fmt.Errorf("read %s: got capability %s, which is not a set of resources: %w", harvest.Plain(p.url), resourcesync.Shorten(p.doc.Capability), ErrNotFound)
}

// isTopic reports whether a page is a topic: it names itself and its hub.
func (p *page) isTopic() bool {
	return len(p.rel("hub")) > 0 && len(p.rel("self")) > 0 &&
		(p.doc == nil || p.doc.Capability == "" || p.doc.Capability == resourcesync.ChangeNotification || p.doc.Capability == resourcesync.ChangeListNotification)
}

// topic returns the Source that a topic belongs to. A topic need not name its Capability List.
func (f *finder) topic(ctx context.Context, p *page) (*Source, error) {
	s := &Source{Topic: p.rel("self")[0]}
	for _, l := range p.links {
		s.addLink(l)
	}
	lists := p.rel("resourcesync")
	if p.doc != nil {
		lists = append(lists, firstLink(p.doc.Links, "up"))
	}
	for _, list := range lists {
		if o := f.capabilitiesAt(ctx, list); o != nil {
			s.rshub = s.rshub || o.rshub && o.Topic == s.Topic
			s.merge(o)
			break
		}
	}
	return s, ctx.Err()
}

// capabilitiesAt returns the Source that the Capability List at a URL describes, or nil.
func (f *finder) capabilitiesAt(ctx context.Context, address string) *Source {
	if address == "" {
		return nil
	}
	p, err := f.get(ctx, address)
	if err != nil || p.doc == nil || p.doc.Capability != resourcesync.CapabilityList {
		return nil
	}
	s, err := f.capabilities(p)
	if err != nil {
		return nil
	}
	return s
}

// links follows the links rel=resourcesync of a page. They should lead to Capability Lists, but
// often lead to a Source Description.
func (f *finder) links(ctx context.Context, p *page) (*Source, error) {
	several := &MultipleSets{URL: p.url.String()}
	var only *Source
	for _, to := range p.rel("resourcesync") {
		q, err := f.get(ctx, to)
		if err != nil {
			return nil, err
		}
		if q.doc == nil {
			continue // do not follow links from page to page, which may form a loop
		}
		s, err := f.sourceAt(ctx, to)
		if more, ok := errors.AsType[*MultipleSets](err); ok {
			several.Sets = append(several.Sets, more.Sets...)
			continue
		}
		if err != nil {
			return nil, err
		}
		only = s
		several.Sets = append(several.Sets, Set{CapabilityList: s.CapabilityList, DescribedBy: s.DescribedBy})
	}
	several.Sets = distinct(several.Sets)
	switch len(several.Sets) {
	case 0:
		return nil, fmt.Errorf("%s is not a ResourceSync document and links to none: %w", harvest.Plain(p.url), ErrNotFound)
	case 1:
		if only != nil {
			return only, nil
		}
		return f.sourceAt(ctx, several.Sets[0].CapabilityList)
	}
	return nil, several
}

// description returns the set that a Source Description names, if it names exactly one.
func (f *finder) description(ctx context.Context, p *page) (*Source, error) {
	sets, err := f.sets(ctx, p, 0)
	if err != nil {
		return nil, err
	}
	switch sets = distinct(sets); len(sets) {
	case 0:
		return nil, fmt.Errorf("the Source Description %s names no Capability List: %w", harvest.Plain(p.url), ErrNotFound)
	case 1:
		q, err := f.get(ctx, sets[0].CapabilityList)
		if err != nil {
			return nil, err
		}
		if q.doc == nil || q.doc.Capability != resourcesync.CapabilityList {
			return nil, fmt.Errorf("%s is not a Capability List: %w", sets[0].CapabilityList, ErrNotFound)
		}
		s, err := f.capabilities(q)
		if err == nil && s.DescribedBy == "" {
			s.DescribedBy = sets[0].DescribedBy
		}
		return s, err
	}
	return nil, &MultipleSets{URL: p.url.String(), Sets: sets}
}

// sets returns the sets of a Source Description, or of the descriptions of an index.
func (f *finder) sets(ctx context.Context, p *page, depth int) ([]Set, error) {
	var sets []Set
	for i := range p.doc.Items {
		it := &p.doc.Items[i]
		if !p.doc.Index {
			if it.Capability == resourcesync.CapabilityList || it.Capability == "" {
				sets = append(sets, Set{CapabilityList: it.Loc, DescribedBy: firstLink(it.Links, "describedby")})
			}
			continue
		}
		q, err := f.get(ctx, it.Loc)
		if err != nil {
			return nil, err
		}
		if depth == 1 || q.doc == nil || q.doc.Capability != resourcesync.Description {
			return nil, fmt.Errorf("%s names %s, which is not a Source Description: %w", harvest.Plain(p.url), it.Loc, ErrNotFound)
		}
		more, err := f.sets(ctx, q, depth+1)
		if err != nil {
			return nil, err
		}
		sets = append(sets, more...)
	}
	return sets, nil
}

// capabilities returns the Source that a Capability List describes.
func (f *finder) capabilities(p *page) (*Source, error) {
	s := &Source{CapabilityList: p.url.String(), DescribedBy: firstLink(p.doc.Links, "describedby")}
	to := map[string]*string{
		resourcesync.ResourceList: &s.ResourceList, resourcesync.ResourceDump: &s.ResourceDump,
		resourcesync.ChangeList: &s.ChangeList, resourcesync.ChangeDump: &s.ChangeDump,
		resourcesync.ChangeNotification: &s.Topic, resourcesync.ChangeListNotification: &s.Topic,
	}
	for i := range p.doc.Items {
		it := &p.doc.Items[i]
		field := to[it.Capability]
		if field == nil || *field != "" { // one document for each capability
			continue
		}
		*field = it.Loc
		if field != &s.Topic {
			continue
		}
		for _, l := range it.Links {
			s.addLink(feed.Link{URI: l.Href, Rel: l.Rel})
		}
	}
	return s, nil
}

// list returns the Source that a list, or an index of lists, belongs to. The Source has this very
// list, unless the list is a part of an index.
func (f *finder) list(ctx context.Context, p *page) (*Source, error) {
	here := p.url.String()
	if index := firstLink(p.doc.Links, "index"); index != "" && !p.doc.Index {
		here = index
	}
	s := new(Source)
	switch p.doc.Capability {
	case resourcesync.ResourceList:
		s.ResourceList = here
	case resourcesync.ResourceDump:
		s.ResourceDump = here
	case resourcesync.ChangeList:
		s.ChangeList = here
	case resourcesync.ChangeDump:
		s.ChangeDump = here
	}
	for _, list := range append(p.rel("resourcesync"), firstLink(p.doc.Links, "up")) {
		if o := f.capabilitiesAt(ctx, list); o != nil {
			s.merge(o)
			break
		}
	}
	return s, ctx.Err()
}

// completeTopic gets from the topic the facts that the Capability List lacks: the hub, and whether
// it is an rshub. The Capability List may be the source's own, which does not know them. It is not
// an error if the topic does not answer: its followers will find out why.
func (f *finder) completeTopic(ctx context.Context, s *Source) error {
	if s.Topic == "" || s.rshub {
		return nil
	}
	p, err := f.get(ctx, s.Topic)
	if err == nil && p.isTopic() {
		if o, err := f.topic(ctx, p); err == nil {
			s.Topic = o.Topic // the topic's own URL for itself
			s.merge(o)
		}
	}
	return ctx.Err()
}

// distinct removes sets whose Capability List came before.
func distinct(sets []Set) []Set {
	seen := map[string]bool{}
	return slices.DeleteFunc(sets, func(s Set) bool {
		again := seen[s.CapabilityList]
		seen[s.CapabilityList] = true
		return again
	})
}
