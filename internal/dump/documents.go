package dump

import (
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// The documents that change. All others have a time in their names.
const (
	descriptionFile    = "description.xml"
	capabilityListFile = "capabilitylist.xml"
	resourceDumpFile   = "resourcedump.xml"
	changeDumpFile     = "changedump.xml"
)

// A document is a document and the name of its file.
type document struct {
	name string
	resourcesync.Document
}

// link returns a link to a file of the place.
func (p *place) link(rel, name, mediaType string) resourcesync.Link {
	return resourcesync.Link{Rel: rel, Href: p.opts.URL + name, Type: mediaType}
}

// item returns the entry of a document for another document.
func (p *place) item(name, capability string) resourcesync.Item {
	return resourcesync.Item{Change: resourcesync.Change{Loc: p.opts.URL + name}, Capability: capability}
}

// timed returns the entry of a document for a part of it, or for one that it archives.
func (p *place) timed(name string, h resourcesync.Header) resourcesync.Item {
	it := p.item(name, "")
	it.From, it.Until, it.At, it.Completed = h.From, h.Until, h.At, h.Completed
	return it
}

// documents returns all documents, but those that stand beside a package, in the order in which
// they are published: those of each run, which do not change, and then those that do. The
// Resource Dump comes before the Change Dump, because a destination that begins with a Resource
// Dump needs all changes since.
func (p *place) documents() (all []document) {
	if len(p.Runs) == 0 {
		return nil
	}
	var newest *run
	var changes, dumps, changeDumps, changeLists []resourcesync.Item
	var dump resourcesync.Document // the newest Resource Dump, whose parts name the one that stays
	for i := range p.Runs {
		newest = &p.Runs[i]
		r := newest
		if len(r.Changes) > 0 {
			h := resourcesync.Header{Capability: resourcesync.ChangeDump, From: r.From, Until: r.Until, Links: p.lacks(r)}
			packs, name := p.packs(r, resourcesync.ChangeDump, r.Changes), r.document(resourcesync.ChangeDump)
			all = append(all, p.pages(name, r, resourcesync.ChangeDump, h, packs)...)
			changes, changeDumps = append(changes, packs...), append(changeDumps, p.timed(name, h))
			for n, k := range r.Changes {
				changeLists = append(changeLists, p.timed(r.changeList(n+1), resourcesync.Header{From: k.From, Until: k.Until}))
			}
		}
		if r.Full {
			h := resourcesync.Header{Capability: resourcesync.ResourceDump, At: r.At, Completed: r.Completed}
			h.Links = append(p.lacks(r), p.link("archives", "resourcedump-archive.xml", ""))
			name := r.document(resourcesync.ResourceDump)
			all = append(all, p.pages(name, r, resourcesync.ResourceDump, h, p.packs(r, resourcesync.ResourceDump, r.Resources))...)
			dumps, dump = append(dumps, p.timed(name, h)), all[len(all)-1].Document
		}
	}
	all = append(all, document{resourceDumpFile, dump})
	h := resourcesync.Header{Capability: resourcesync.ChangeDump, From: p.Runs[0].From, Links: p.lacks(newest)}
	if len(changes) > 0 {
		h.Links = append(h.Links, p.link("archives", "changedump-archive.xml", ""))
	}
	all = append(all, p.pages(changeDumpFile, newest, "changedump-all", h, changes)...)
	items := []resourcesync.Item{p.item(resourceDumpFile, resourcesync.ResourceDump), p.item(changeDumpFile, resourcesync.ChangeDump)}
	archive := func(capability string, archived []resourcesync.Item) {
		if len(archived) > 0 {
			all = append(all, p.pages(capability+".xml", newest, capability, resourcesync.Header{Capability: capability}, archived)...)
			items = append(items, p.item(capability+".xml", capability))
		}
	}
	archive(resourcesync.ResourceDumpArchive, dumps)
	archive(resourcesync.ChangeDumpArchive, changeDumps)
	archive(resourcesync.ChangeListArchive, changeLists)
	description := resourcesync.Header{Capability: resourcesync.Description}
	capabilityList := resourcesync.Header{Capability: resourcesync.CapabilityList, Links: []resourcesync.Link{p.link("up", descriptionFile, "")}}
	return append(all,
		document{descriptionFile, resourcesync.Document{Header: description, Items: []resourcesync.Item{p.item(capabilityListFile, resourcesync.CapabilityList)}}},
		document{capabilityListFile, resourcesync.Document{Header: capabilityList, Items: items}})
}

// lacks returns the link to the list of what a run could not read, if there is one.
func (p *place) lacks(r *run) []resourcesync.Link {
	if !r.Unreadable {
		return nil
	}
	return []resourcesync.Link{p.link(Unreadable, r.unreadable(), "text/plain")}
}

// packs returns the entries for the packages of a run.
func (p *place) packs(r *run, kind string, packs []pack) (items []resourcesync.Item) {
	for n, k := range packs {
		it := p.timed(r.zip(kind, n+1), resourcesync.Header{From: k.From, Until: k.Until, At: k.At, Completed: k.Completed})
		it.Hash, it.Length, it.Type = k.Hash, &k.Length, "application/zip"
		it.Links = []resourcesync.Link{p.link("contents", r.manifest(kind, n+1), "application/xml")}
		items = append(items, it)
	}
	return items
}

// pages returns a document with items. If they are more than one document may have, it returns
// parts, named after kind and the time of a run, and then an index of them.
func (p *place) pages(name string, r *run, kind string, h resourcesync.Header, items []resourcesync.Item) (all []document) {
	h.Links = append([]resourcesync.Link{p.link("up", capabilityListFile, "")}, h.Links...)
	if len(items) <= p.opts.most {
		return []document{{name, resourcesync.Document{Header: h, Items: items}}}
	}
	index := document{name, resourcesync.Document{Header: h}}
	index.Index = true
	h.Links = []resourcesync.Link{h.Links[0], p.link("index", name, "")}
	for some := range slices.Chunk(items, p.opts.most) {
		part := document{r.part(kind, len(all)+1), resourcesync.Document{Header: h, Items: some}}
		if !h.From.IsZero() {
			part.From, part.Until = some[0].From, some[len(some)-1].Until
			if len(all) > 0 { // the parts leave no time out between them
				part.From = all[len(all)-1].Until
			}
		}
		all, index.Items = append(all, part), append(index.Items, p.timed(part.name, part.Header))
	}
	return append(all, index)
}

// named returns the names of the files that documents name, and of those that the next run needs.
func (p *place) named() map[string]bool {
	named := map[string]bool{}
	add := func(links []resourcesync.Link) {
		for _, l := range links {
			named[strings.TrimPrefix(l.Href, p.opts.URL)] = true
		}
	}
	for _, d := range p.documents() {
		named[d.name] = true
		add(d.Links)
		for i := range d.Items {
			named[strings.TrimPrefix(d.Items[i].Loc, p.opts.URL)] = true
			add(d.Items[i].Links)
		}
	}
	if r := p.newest(); r != nil {
		named[r.state()] = true
	}
	return named
}
