package server

import (
	"encoding/json"

	"github.com/rshub/rshub/feed"
)

// catalogType is the media type of an API catalog (RFC 9727 section 4.2).
const catalogType = `application/linkset+json;profile="https://www.rfc-editor.org/info/rfc9727"`

// A linkContext is a resource and its links in a linkset (RFC 9264 section 4.2).
type linkContext struct {
	Anchor      string       `json:"anchor"`
	Item        []linkTarget `json:"item,omitempty"`
	ServiceDesc []linkTarget `json:"service-desc,omitempty"`
	ServiceDoc  []linkTarget `json:"service-doc,omitempty"`
	ServiceMeta []linkTarget `json:"service-meta,omitempty"`
}

// A linkTarget is the target of a link in a linkset.
type linkTarget struct {
	Href  string `json:"href"`
	Type  string `json:"type,omitempty"`
	Title string `json:"title,omitempty"`
}

// newCatalog returns the API catalog of a hub (RFC 9727): its interfaces, each with its
// specification as service-doc, as in FAIRiCat. It names no sets, because their visibility depends on
// the caller; the Source Description lists them. It has no status, because the health of the hub is
// at the operations address.
func newCatalog(base feed.Base) *staticDocument {
	const (
		description = "ResourceSync Source Description"
		api         = "HTTP API: publish and follow sets of resources"
		websub      = "WebSub hub"
	)
	home := string(base) + "/"
	linkset := []linkContext{
		{
			Anchor: base.Catalog(),
			Item: []linkTarget{
				{Href: base.Description(), Type: "application/xml", Title: description},
				{Href: home, Title: api},
				{Href: base.Hub(), Title: websub},
			},
		},
		{
			Anchor:      base.Description(),
			ServiceDoc:  []linkTarget{{Href: "http://www.openarchives.org/rs/1.1/resourcesync", Type: "text/html", Title: "ResourceSync Framework Specification"}},
			ServiceMeta: []linkTarget{{Href: base.Description(), Type: "application/xml", Title: description}},
		},
		{
			Anchor:      home,
			ServiceDesc: []linkTarget{{Href: base.OpenAPI(), Type: "application/json", Title: "OpenAPI"}},
			ServiceDoc:  []linkTarget{{Href: home, Type: "text/html", Title: "Web page of the hub"}},
		},
		{
			Anchor:      base.Hub(),
			ServiceDesc: []linkTarget{{Href: base.OpenAPI(), Type: "application/json", Title: "OpenAPI"}},
			ServiceDoc:  []linkTarget{{Href: "https://www.w3.org/TR/websub/", Type: "text/html", Title: "WebSub"}},
		},
	}
	text, err := json.MarshalIndent(map[string][]linkContext{"linkset": linkset}, "", "  ")
	if err != nil {
		panic(err) // strings can always be marshaled
	}
	d := newStaticDocument(string(text)+"\n", catalogType)
	d.link = base.CatalogLink()
	return d
}
