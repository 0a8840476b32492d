package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
)

const (
	linksetType = "application/linkset+json"
	acceptJSON  = linksetType + ", application/json;q=0.9, */*;q=0.1"

	maxLinkset  = 1 << 20 // bytes of a linkset; a longer one is ignored
	maxTargets  = 5_000   // link targets of a linkset that are read
	maxServices = 20      // interfaces of each kind that are stored
	maxDescs    = 4       // descriptions of an interface that are stored
	maxNested   = 8       // catalogs that a catalog may name
)

// Kinds of interfaces that matter in an API catalog.
const (
	resourceSync = iota
	oaiPMH
	sitemap
	kinds
)

// A service is an interface that a catalog names: its candidate URLs, the likeliest first.
type service []string

// A linkset is the part of an API catalog (RFC 9727) that matters for discovery. The catalog may
// follow FAIRiCat: the anchor of a context is the interface, service-doc leads to its
// specification, and service-meta to its description. Other catalogs list interfaces as item.
type linkset struct {
	services [kinds][]service
	nested   []string // other catalogs
}

// size returns the approximate memory of the linkset in bytes.
func (l *linkset) size() (bytes int) {
	for _, u := range l.nested {
		bytes += 50 + len(u)
	}
	for _, services := range l.services {
		for _, s := range services {
			for _, u := range s {
				bytes += 50 + len(u)
			}
		}
	}
	return bytes
}

// add adds a service, unless one of the same kind has the same first URL.
func (l *linkset) add(kind int, s service) {
	s = slices.DeleteFunc(s, func(u string) bool { return u == "" || kindOf(u) == kind })
	same := func(o service) bool { return o[0] == s[0] }
	if len(s) > 0 && len(l.services[kind]) < maxServices && !slices.ContainsFunc(l.services[kind], same) {
		l.services[kind] = append(l.services[kind], s)
	}
}

func (l *linkset) addNested(u string) {
	if u != "" && len(l.nested) < maxNested && !slices.Contains(l.nested, u) {
		l.nested = append(l.nested, u)
	}
}

// A target is the target of a link.
type target struct {
	href, mediaType string
	profiles        []string
}

// UnmarshalJSON reads a target object (RFC 9264 section 4.2.3). It also reads a string, because a
// draft of RFC 9727 had an example with one. It ignores a member of another type.
func (t *target) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		_ = json.Unmarshal(text, &t.href)
		return nil
	}
	var profile string
	_ = json.Unmarshal(members["href"], &t.href)
	_ = json.Unmarshal(members["type"], &t.mediaType)
	if json.Unmarshal(members["profile"], &profile) == nil {
		t.profiles = strings.Fields(profile)
	} else {
		_ = json.Unmarshal(members["profile"], &t.profiles)
	}
	return nil
}

// readLinkset reads a linkset as JSON. It returns nil if body has none. References are relative to
// base.
func readLinkset(body io.Reader, base *url.URL) (*linkset, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxLinkset+1))
	if err != nil || len(text) > maxLinkset {
		return nil, err
	}
	var doc struct {
		Linkset []json.RawMessage `json:"linkset"`
	}
	if json.Unmarshal(text, &doc) != nil || doc.Linkset == nil {
		return nil, nil
	}
	l, read := new(linkset), 0
	for _, text := range doc.Linkset {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			continue
		}
		var anchor string
		_ = json.Unmarshal(members["anchor"], &anchor) // a member of another type counts as missing
		delete(members, "anchor")
		relations := map[string][]target{}
		for _, rel := range slices.Sorted(maps.Keys(members)) {
			var targets []target
			if json.Unmarshal(members[rel], &targets) != nil {
				targets = make([]target, 1)
				_ = targets[0].UnmarshalJSON(members[rel])
			}
			targets = targets[:min(len(targets), maxTargets-read)]
			read += len(targets)
			for i := range targets {
				targets[i].href = httpURL(base, targets[i].href)
			}
			relations[strings.ToLower(rel)] = targets
		}
		l.addContext(httpURL(base, anchor), relations)
	}
	return l, nil
}

// addContext adds the services that the links of an anchor name.
func (l *linkset) addContext(anchor string, relations map[string][]target) {
	var (
		specified  [kinds]bool // kinds that the specifications of the anchor name
		descs      service     // descriptions of the anchor
		identified service     // base URLs from Identify requests of the anchor
	)
	if wellKnown(anchor) {
		l.add(resourceSync, service{anchor})
	}
	for _, rel := range slices.Sorted(maps.Keys(relations)) {
		for _, t := range relations[rel] {
			for _, profile := range t.profiles {
				if kind := kindOf(profile); kind >= 0 {
					l.add(kind, service{t.href})
				}
			}
			switch rel {
			case "resourcesync":
				l.add(resourceSync, service{t.href})
			case "sitemap":
				l.add(sitemap, service{t.href})
			case "api-catalog":
				l.addNested(t.href)
			case "item":
				if strings.EqualFold(t.mediaType, linksetType) {
					l.addNested(t.href)
				}
			case "service-doc", "service-desc", "service-meta", "describedby", "profile":
				if kind := kindOf(t.href); kind >= 0 {
					specified[kind] = true
				} else if len(descs) < maxDescs && (rel == "service-desc" || rel == "service-meta") {
					descs = append(descs, t.href)
				}
			}
			if wellKnown(t.href) {
				l.add(resourceSync, service{t.href})
			}
			if at := repositoryOf(t.href); at != "" && len(identified) < maxDescs {
				specified[oaiPMH] = true
				identified = append(identified, at)
			}
		}
	}
	for kind, does := range specified {
		switch {
		case does && kind == oaiPMH:
			l.add(kind, append(identified, withoutVerb(anchor)))
		case does:
			l.add(kind, append(service{anchor}, descs...))
		}
	}
}

// kindOf returns the kind of interface that a URL specifies, or -1.
func kindOf(specification string) int {
	u, err := url.Parse(specification)
	if err != nil {
		return -1
	}
	host, path := strings.TrimPrefix(strings.ToLower(u.Host), "www."), strings.ToLower(u.Path)+"/"
	switch {
	case host == "openarchives.org" && strings.HasPrefix(path, "/rs/"):
		return resourceSync
	case host == "openarchives.org" && (strings.HasPrefix(path, "/oai/") || strings.HasPrefix(path, "/pmh/")):
		return oaiPMH
	case host == "sitemaps.org":
		return sitemap
	}
	return -1
}

// wellKnown reports whether a URL is the URL of a Source Description.
func wellKnown(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(u.Path, "/.well-known/resourcesync")
}

// repositoryOf returns the base URL of the repository if a URL is an Identify request, or else "".
func repositoryOf(address string) string {
	if u, err := url.Parse(address); err != nil || u.Query().Get("verb") != "Identify" {
		return ""
	}
	return withoutVerb(address)
}

// withoutVerb returns the base URL of the repository that a request goes to.
func withoutVerb(address string) string {
	u, err := url.Parse(address)
	if err != nil || !u.Query().Has("verb") {
		return address
	}
	query := u.Query()
	query.Del("verb")
	u.RawQuery = query.Encode()
	return u.String()
}

// httpURL resolves a reference. It returns "" unless the result is an http or https URL.
func httpURL(base *url.URL, reference string) string {
	u, err := base.Parse(strings.TrimSpace(reference))
	if err != nil || reference == "" || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return absolute(base, u.String())
}

// mayContinue reports whether the search continues without an optional document after an error.
func mayContinue(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !harvest.IsAway(err)
}

// catalogs returns the services of API catalogs, and of the catalogs that these name.
func (f *finder) catalogs(ctx context.Context, addresses []string) (*linkset, error) {
	all, seen := new(linkset), map[string]bool{}
	for depth := range 2 {
		var nested []string
		for _, at := range addresses {
			if seen[at] {
				continue
			}
			seen[at] = true
			p, err := f.getCatalog(ctx, at)
			if err != nil && !mayContinue(ctx, err) {
				return nil, err
			}
			if err != nil || p.linkset == nil {
				continue
			}
			seen[p.url.String()] = true
			for kind, services := range p.linkset.services {
				for _, s := range services {
					all.add(kind, slices.Clone(s))
				}
			}
			nested = append(nested, p.linkset.nested...)
		}
		if depth == 0 {
			addresses = nested[:min(len(nested), maxNested)]
		}
	}
	return all, nil
}

// getCatalog is get for an API catalog.
func (f *finder) getCatalog(ctx context.Context, address string) (*page, error) {
	if p := f.pages[address]; p != nil && p.linkset != nil {
		return p, nil
	}
	if len(f.pages) == maxPages {
		return nil, fmt.Errorf("stop after %d documents; the next is %s", maxPages, address)
	}
	g := f.getter.Once()
	g.Accept = acceptJSON
	p, err := get(ctx, g, address, &f.memory)
	if err == nil {
		f.pages[address] = p
	}
	return p, err
}

// catalogSource returns the Source of a catalog by ResourceSync, or nil.
func (f *finder) catalogSource(ctx context.Context, l *linkset) (*Source, error) {
	var (
		several = new(MultipleSets)
		only    *Source
	)
	for _, s := range l.services[resourceSync] {
		for _, at := range s {
			found, err := f.sourceAt(ctx, at)
			if more, ok := errors.AsType[*MultipleSets](err); ok {
				several.URL = more.URL
				several.Sets = append(several.Sets, more.Sets...)
				break
			}
			if err != nil && !mayContinue(ctx, err) {
				return nil, err
			}
			if err != nil || found.Sitemap != "" {
				continue
			}
			if only == nil {
				only = found
			}
			if found.CapabilityList != "" {
				several.URL = at
				several.Sets = append(several.Sets, Set{CapabilityList: found.CapabilityList, DescribedBy: found.DescribedBy})
			}
			break
		}
	}
	if several.Sets = distinct(several.Sets); len(several.Sets) > 1 {
		return nil, several
	}
	return only, nil
}

// repository returns the base URL of the repository that a catalog names. It returns "" if the
// catalog names none or several, because each would have only a part of the resources.
func (f *finder) repository(ctx context.Context, l *linkset) (string, error) {
	if len(l.services[oaiPMH]) != 1 {
		return "", nil
	}
	for _, at := range l.services[oaiPMH][0] {
		_, err := (&oaipmh.Repository{Getter: f.getter.Once(), URL: at}).Identify(ctx)
		if err == nil {
			return at, nil
		}
		if !mayContinue(ctx, err) {
			return "", err
		}
	}
	return "", nil
}

// catalogSitemap returns the sitemap that a catalog names; empty if it names none or several.
func (f *finder) catalogSitemap(ctx context.Context, l *linkset) (string, error) {
	if len(l.services[sitemap]) != 1 {
		return "", nil
	}
	for _, at := range l.services[sitemap][0] {
		p, err := f.get(ctx, at)
		switch {
		case err != nil && !mayContinue(ctx, err):
			return "", err
		case err == nil && (p.doc != nil && p.doc.Capability == "" || p.text):
			return at, nil
		}
	}
	return "", nil
}
