package dump

import (
	"slices"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// Names of the documents that are updated in place. All other documents have a time in their names.
const (
	descriptionFile    = "description.xml"
	capabilityListFile = "capabilitylist.xml"
	resourceDumpFile   = "resourcedump.xml"
	changeDumpFile     = "changedump.xml"
)

// A document is a ResourceSync document with its file name.
type document struct {
	name string
	resourcesync.Document
}

// link returns a link to a file of the directory.
func (p *directory) link(rel, name, mediaType string) resourcesync.Link {
	return resourcesync.Link{Rel: rel, Href: p.opts.URL + name, Type: mediaType}
}

// item returns an entry that references another document.
func (p *directory) item(name, capability string) resourcesync.Item {
	return resourcesync.Item{Change: resourcesync.Change{Loc: p.opts.URL + name}, Capability: capability}
}

// timedItem returns an entry that references a document or a part of one, with the times of its
// header.
func (p *directory) timedItem(name string, h resourcesync.Header) resourcesync.Item {
	it := p.item(name, "")
	it.From, it.Until, it.At, it.Completed = h.From, h.Until, h.At, h.Completed
	return it
}

// documents returns all documents except the manifests and Change Lists of packages, in the order
// in which they are published: first the immutable documents of each run, then the documents that
// are updated in place. The Resource Dump precedes the Change Dump, because a destination that
// starts with a Resource Dump needs all changes since then.
func (p *directory) documents() (all []document) {
	if len(p.Runs) == 0 {
		return nil
	}
	var newest *run
	var changes, dumps, changeDumps, changeLists []resourcesync.Item
	var dump resourcesync.Document // newest Resource Dump; its parts link to the index that is updated in place
	for i := range p.Runs {
		newest = &p.Runs[i]
		r := newest
		if len(r.Changes) > 0 {
			h := resourcesync.Header{Capability: resourcesync.ChangeDump, From: r.From, Until: r.Until, Links: p.unreadableLinks(r)}
			packs, name := p.packageItems(r, resourcesync.ChangeDump, r.Changes), r.document(resourcesync.ChangeDump)
			all = append(all, p.paginate(name, r, resourcesync.ChangeDump, h, packs)...)
			changes, changeDumps = append(changes, packs...), append(changeDumps, p.timedItem(name, h))
			for n, k := range r.Changes {
				changeLists = append(changeLists, p.timedItem(r.changeList(n+1), resourcesync.Header{From: k.From, Until: k.Until}))
			}
		}
		if r.Full {
			h := resourcesync.Header{Capability: resourcesync.ResourceDump, At: r.At, Completed: r.Completed}
			h.Links = append(p.unreadableLinks(r), p.link("archives", "resourcedump-archive.xml", ""))
			name := r.document(resourcesync.ResourceDump)
			all = append(all, p.paginate(name, r, resourcesync.ResourceDump, h, p.packageItems(r, resourcesync.ResourceDump, r.Resources))...)
			dumps, dump = append(dumps, p.timedItem(name, h)), all[len(all)-1].Document
		}
	}
	all = append(all, document{resourceDumpFile, dump})
	h := resourcesync.Header{Capability: resourcesync.ChangeDump, From: p.Runs[0].From, Links: p.unreadableLinks(newest)}
	if len(changes) > 0 {
		h.Links = append(h.Links, p.link("archives", "changedump-archive.xml", ""))
	}
	all = append(all, p.paginate(changeDumpFile, newest, "changedump-all", h, changes)...)
	items := []resourcesync.Item{p.item(resourceDumpFile, resourcesync.ResourceDump), p.item(changeDumpFile, resourcesync.ChangeDump)}
	archive := func(capability string, archived []resourcesync.Item) {
		if len(archived) > 0 {
			all = append(all, p.paginate(capability+".xml", newest, capability, resourcesync.Header{Capability: capability}, archived)...)
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

// unreadableLinks returns the link to the list of resources that a run could not read, or nil if it
// read all of them.
func (p *directory) unreadableLinks(r *run) []resourcesync.Link {
	if !r.Unreadable {
		return nil
	}
	return []resourcesync.Link{p.link(Unreadable, r.unreadable(), "text/plain")}
}

// packageItems returns the entries for the packages of a run.
func (p *directory) packageItems(r *run, kind string, packs []packageInfo) (items []resourcesync.Item) {
	for n, k := range packs {
		it := p.timedItem(r.zip(kind, n+1), resourcesync.Header{From: k.From, Until: k.Until, At: k.At, Completed: k.Completed})
		it.Hash, it.Length, it.Type = k.Hash, &k.Length, "application/zip"
		it.Links = []resourcesync.Link{p.link("contents", r.manifest(kind, n+1), "application/xml")}
		items = append(items, it)
	}
	return items
}

// paginate returns a document with the given items. If there are more items than a document may
// have, it returns parts, named after kind and the time of the run, followed by their index.
func (p *directory) paginate(name string, r *run, kind string, h resourcesync.Header, items []resourcesync.Item) (all []document) {
	h.Links = append([]resourcesync.Link{p.link("up", capabilityListFile, "")}, h.Links...)
	if len(items) <= p.opts.maxItems {
		return []document{{name, resourcesync.Document{Header: h, Items: items}}}
	}
	index := document{name, resourcesync.Document{Header: h}}
	index.Index = true
	h.Links = []resourcesync.Link{h.Links[0], p.link("index", name, "")}
	for some := range slices.Chunk(items, p.opts.maxItems) {
		part := document{r.part(kind, len(all)+1), resourcesync.Document{Header: h, Items: some}}
		if !h.From.IsZero() {
			part.From, part.Until = some[0].From, some[len(some)-1].Until
			if len(all) > 0 { // the intervals of the parts are consecutive
				part.From = all[len(all)-1].Until
			}
		}
		all, index.Items = append(all, part), append(index.Items, p.timedItem(part.name, part.Header))
	}
	return append(all, index)
}

// referencedFiles returns the names of all files that the documents reference or the next run
// needs.
func (p *directory) referencedFiles() map[string]bool {
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
