package dump

import (
	"slices"
	"time"

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
func (p *place) link(rel, name string) resourcesync.Link {
	return resourcesync.Link{Rel: rel, Href: p.opts.URL + name}
}

// item returns the entry of a document for another document.
func (p *place) item(name, capability string) resourcesync.Item {
	return resourcesync.Item{Change: resourcesync.Change{Loc: p.opts.URL + name}, Capability: capability}
}

// documents returns the documents of the newest run, and those that change, in the order in
// which they are published. The Resource Dump comes before the Change Dump, because a
// destination that begins with a Resource Dump needs all changes since.
func (p *place) documents() (all []document) {
	r, full := p.newest(), p.full()
	if len(r.Changes) > 0 {
		h := resourcesync.Header{Capability: resourcesync.ChangeDump, From: r.From, Until: r.Until, Links: p.lacks(r)}
		all = append(all, p.pages(r.document(resourcesync.ChangeDump), resourcesync.ChangeDump, r.At, h, p.packs(r, resourcesync.ChangeDump))...)
	}
	h := resourcesync.Header{Capability: resourcesync.ResourceDump, At: full.At, Completed: full.Completed}
	h.Links = append(p.lacks(full), p.link("archives", "resourcedump-archive.xml"))
	all = append(all, p.pages(full.document(resourcesync.ResourceDump), resourcesync.ResourceDump, full.At, h, p.packs(full, resourcesync.ResourceDump))...)
	all = append(all, document{resourceDumpFile, all[len(all)-1].Document}) // its parts name the one that stays
	var changes []resourcesync.Item
	for i := range p.Runs {
		changes = append(changes, p.packs(&p.Runs[i], resourcesync.ChangeDump)...)
	}
	h = resourcesync.Header{Capability: resourcesync.ChangeDump, From: p.Runs[0].From, Links: p.lacks(r)}
	if len(changes) > 0 {
		h.Links = append(h.Links, p.link("archives", "changedump-archive.xml"))
	}
	all = append(all, p.pages(changeDumpFile, "changedump-all", r.At, h, changes)...)
	items := []resourcesync.Item{p.item(resourceDumpFile, resourcesync.ResourceDump), p.item(changeDumpFile, resourcesync.ChangeDump)}
	for _, a := range p.archives() {
		all = append(all, p.pages(a.name, a.Capability, r.At, a.Header, a.Items)...)
		items = append(items, p.item(a.name, a.Capability))
	}
	return append(all,
		document{descriptionFile, resourcesync.Document{Header: resourcesync.Header{Capability: resourcesync.Description}, Items: []resourcesync.Item{p.item(capabilityListFile, resourcesync.CapabilityList)}}},
		document{capabilityListFile, resourcesync.Document{Header: resourcesync.Header{Capability: resourcesync.CapabilityList, Links: []resourcesync.Link{p.link("up", descriptionFile)}}, Items: items}})
}

// lacks returns the link to the list of what a run could not read, if there is one.
func (p *place) lacks(r *run) []resourcesync.Link {
	if !r.Unreadable {
		return nil
	}
	l := p.link(Unreadable, r.unreadable())
	l.Type = "text/plain"
	return []resourcesync.Link{l}
}

// archives returns the archives: of Resource Dumps, of Change Dumps, and of Change Lists.
func (p *place) archives() []document {
	dumps, changes, lists := archive(resourcesync.ResourceDumpArchive), archive(resourcesync.ChangeDumpArchive), archive(resourcesync.ChangeListArchive)
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.Full {
			it := p.item(r.document(resourcesync.ResourceDump), "")
			it.At, it.Completed = r.At, r.Completed
			dumps.Items = append(dumps.Items, it)
		}
		if len(r.Changes) > 0 {
			it := p.item(r.document(resourcesync.ChangeDump), "")
			it.From, it.Until = r.From, r.Until
			changes.Items = append(changes.Items, it)
		}
		for n := range r.Changes {
			it := p.item(r.changeList(n+1), "")
			it.From, it.Until = r.Changes[n].From, r.Changes[n].Until
			lists.Items = append(lists.Items, it)
		}
	}
	return slices.DeleteFunc([]document{dumps, changes, lists}, func(d document) bool { return len(d.Items) == 0 })
}

func archive(capability string) document {
	return document{capability + ".xml", resourcesync.Document{Header: resourcesync.Header{Capability: capability}}}
}

// packs returns the entries for the packages of a run.
func (p *place) packs(r *run, kind string) (items []resourcesync.Item) {
	packs := r.Resources
	if kind == resourcesync.ChangeDump {
		packs = r.Changes
	}
	for n, k := range packs {
		it := p.item(r.zip(kind, n+1), "")
		contents := p.link("contents", r.manifest(kind, n+1))
		contents.Type = "application/xml"
		it.Hash, it.Length, it.Type, it.Links = k.Hash, &k.Length, "application/zip", []resourcesync.Link{contents}
		it.From, it.Until, it.At, it.Completed = k.From, k.Until, k.At, k.Completed
		items = append(items, it)
	}
	return items
}

// pages returns a document with items. If they are more than one document may have, it
// returns parts, named after kind and the time, and then an index of them.
func (p *place) pages(name, kind string, at time.Time, h resourcesync.Header, items []resourcesync.Item) (all []document) {
	h.Links = append([]resourcesync.Link{p.link("up", capabilityListFile)}, h.Links...)
	if len(items) <= p.opts.most {
		return []document{{name, resourcesync.Document{Header: h, Items: items}}}
	}
	index := document{name, resourcesync.Document{Header: h}}
	index.Index = true
	h.Links = []resourcesync.Link{h.Links[0], p.link("index", name)}
	for some := range slices.Chunk(items, p.opts.most) {
		part := document{partOf(kind, at, len(all)+1), resourcesync.Document{Header: h, Items: some}}
		it := p.item(part.name, "")
		it.At, it.Completed = h.At, h.Completed
		if !h.From.IsZero() {
			it.From, part.From = some[0].From, some[0].From
			it.Until, part.Until = some[len(some)-1].Until, some[len(some)-1].Until
			if len(all) > 0 { // the parts leave no time out between them
				it.From, part.From = all[len(all)-1].Until, all[len(all)-1].Until
			}
		}
		all, index.Items = append(all, part), append(index.Items, it)
	}
	return append(all, index)
}

// files returns the names of the files with a time in their names that the documents name.
func (p *place) files() map[string]bool {
	named := map[string]bool{}
	if len(p.Runs) == 0 {
		return named
	}
	for _, d := range p.documents() {
		named[d.name] = true
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		named[r.document(resourcesync.ResourceDump)], named[r.unreadable()] = r.Full, r.Unreadable
		named[r.document(resourcesync.ChangeDump)] = len(r.Changes) > 0
		for kind, packs := range map[string][]pack{resourcesync.ResourceDump: r.Resources, resourcesync.ChangeDump: r.Changes} {
			for n := range packs {
				named[r.zip(kind, n+1)], named[r.manifest(kind, n+1)] = true, true
				if n%p.opts.most == 0 && len(packs) > p.opts.most {
					named[partOf(kind, r.At, n/p.opts.most+1)] = true
				}
				if kind == resourcesync.ChangeDump {
					named[r.changeList(n+1)] = true
				}
			}
		}
	}
	named[p.newest().state()] = true
	return named
}
